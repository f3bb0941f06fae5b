"""From a payroll's ACH file to paid rows: refused, mapped, answered by a person, sent; as CSV the same requests."""

from __future__ import annotations

import csv
import re

from batchpay.intake.ach_payments import NAMES
from batchpay.intake.source import open_source
from tests.support.ach_files import ach_file, entry
from tests.support.command import Home
from tests.support.oracle import Oracle

PEOPLE = [
    entry("22", 253479, "000937672879", payment_id="E0", name="OWEN MENON"),
    entry("32", 131632, "760439580438", payment_id="E1", name="RAVI MARSH"),
    entry("23", 0, "99887766", payment_id="E2", name="NEW HIRE"),
    entry("27", 385111, "55443322", name="OUR COMPANY"),
]
ANSWERS = {
    "split": '"{billingFirstName} {billingLastName}" = "achNameOnCheck"\n',
    "rows": 'left_out = ["offset entry"]\n',
    "fixed": 'gatewayId = "1001"\nachAgreementFlag = "1"\ninvoiceNumber = "NOVEMBER"\n',
}


def test_from_an_ach_file_to_paid_rows(oracle_home: Home, oracle: Oracle) -> None:
    """Prenote and offset are left out and told; the same content as CSV is the same batch, and the same requests."""
    home, path = oracle_home, oracle_home.path / "payroll.ach"
    path.write_bytes(ach_file(PEOPLE))
    refused = home.run("validate", path.name)
    assert (refused.returncode, "batchpay map FILE" in refused.stderr) == (4, True)
    proposed = home.run("map", path.name, "--write", "ach.toml")
    assert proposed.returncode == 8
    for question in ("is a row with offset entry (1 row)", "when is each payment sent?", "which gateway account"):
        assert question in " ".join(proposed.stdout.split())
    assert "000937672879" not in proposed.stdout + proposed.stderr
    assert home.run("submit", path.name, "--map", "ach.toml").returncode == 8, "questions are open"
    written = home.path / "ach.toml"
    text = re.sub(r"\nopen = \[.*?\n\]\n", "\n", written.read_text("utf-8"), flags=re.DOTALL)
    for table, answer in ANSWERS.items():
        text = text.replace(f"[{table}]\n", f"[{table}]\n{answer}")
    written.write_text(text, "utf-8")
    sent = home.json("submit", path.name, "--map", "ach.toml")
    assert (sent["accepted"], sent["amount"]["accepted"], sent["exit_code"]) == (2, "3851.11", 0)
    assert (sent["left_out"]["rows"], sent["left_out"]["amount"]) == (1, "3851.11")

    with open_source(str(path), required=()) as source, (home.path / "payroll.csv").open("w", newline="") as file:
        rows = [row for chunk in source.chunks() for row in chunk.select(NAMES).iter_rows()]
        csv.writer(file).writerows([NAMES, *rows])
    same = home.json("submit", "payroll.csv", "--map", "ach.toml")
    assert (same["batch"], same["accepted"]) == (sent["batch"], 2)
    home.json("submit", "payroll.csv", "--map", "ach.toml", "--again", "--reason", "the same requests")
    assert sorted(oracle.bodies().values()) == [2, 2]
