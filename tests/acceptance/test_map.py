"""From another system's file to paid rows: refused, mapped, filled in by a person, sent, corrected, sent."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.command import Home

VENDORS = """\
Vendor ID,Vendor Name,Bank Routing #,Bank Account #,Account Type,Net Due,Invoice #,Memo
V1,Acme Supplies Inc,021000021,11391039,Checking,"$1,250.00",MAP-1001,north
V2,Delta Tools LLC,021000322,483110589481,Savings,$75.50,MAP-1002,
V3,Omega Partners,011000015,0009988,chk,"12.345,00",MAP-1003,see letter
V4,Sigma Works,011000015,0009989,chk,$9.99,MAP-1004,
"""
ANSWERS = (
    'transactionType = "CREDIT"', 'achAccountType = "BUSINESS"', 'achAgreementFlag = "1"',
    'achNameOnCheck = "Vendor Name"', 'billingCompany = "Vendor Name"', 'billingFirstName = "Vendor Name"',
    'billingLastName = "Vendor Name"', 'paymentId = "{Vendor ID}-{Invoice #}"', 'amount = "Net Due"',
    'decimal = "."', 'thousands = ","', 'currency = "$"',
)  # fmt: skip


def fill_in(path: Path) -> None:
    """Do what a person does in an editor: remove the # from the lines that are right."""
    lines: list[str] = []
    text = re.sub(r"\nopen = \[.*?\n\]\n", "\n", path.read_text("utf-8"), flags=re.DOTALL)
    for line in text.splitlines():
        answer = line.removeprefix("#   ")
        if line.startswith("#   ") and answer.startswith(ANSWERS):
            replaced = answer.partition(" = ")[0] + " = "
            lines = [one for one in lines if not one.startswith(replaced)]  # replacing the line above
            line = answer
        lines.append('gatewayId = "1001"' if line.startswith("#   gatewayId") else line)
    path.write_text("\n".join(lines) + "\n", "utf-8")


def test_from_a_vendor_list_to_paid_rows(sandbox_home: Home) -> None:
    """Every step says what to do next, and in the end each row is paid once."""
    home = sandbox_home
    (home.path / "vendors.csv").write_text(VENDORS, "utf-8")
    refused = home.run("validate", "vendors.csv")
    assert refused.returncode == 4
    assert "batchpay map FILE" in refused.stderr
    proposed = home.run("map", "vendors.csv", "--write", "vendors.toml")
    assert proposed.returncode == 8, proposed.stdout + proposed.stderr
    assert "batchpay validate vendors.csv --map vendors.toml" in proposed.stdout
    assert "open: amount: which column is amount? Net Due" in proposed.stdout
    assert "11391039" not in proposed.stdout + (home.path / "vendors.toml").read_text()
    assert home.run("map", "vendors.csv", "--write", "vendors.toml").returncode == 2
    waits = home.run("submit", "vendors.csv", "--map", "vendors.toml")
    assert waits.returncode == 8, "a map with open questions sends nothing"
    assert "has open questions, the first: amount: which column is amount?" in waits.stderr
    fill_in(home.path / "vendors.toml")
    first = home.json("submit", "vendors.csv", "--map", "vendors.toml")
    assert (first["accepted"], first["rejected"], first["exit_code"]) == (3, 1, 3)
    assert first["amount"]["accepted"] == "1335.49"
    rejects = home.path / first["rejects"]
    text = rejects.read_text("utf-8")
    assert "column Net Due is not written as the map says, like 1,234.56" in text
    assert '0009988,chk,"12.345,00",MAP-1003,see letter' in text
    rejects.write_text(text.replace('"12.345,00"', '"$12,345.00"'), "utf-8")
    second = home.json("submit", rejects.name, "--map", "vendors.toml")
    assert (second["accepted"], second["amount"]["accepted"]) == (1, "12345.00")
    (home.path / "corrected.csv").write_text(VENDORS.replace("12.345,00", "$12,345.00"), "utf-8")
    again = home.json("submit", "corrected.csv", "--map", "vendors.toml")
    assert (again["accepted"], again["rejected"], again["exit_code"]) == (0, 4, 3)
