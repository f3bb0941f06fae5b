"""Files of banks that are no payment file: refused by their name, first and alone, and nothing of them is shown.

An ACH file without its header records had the account number of its first entry printed whole: `map` took the line for
the name of a column, and asked seven questions about it.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from batchpay.errors import FileRefused
from tests.support.command import Home
from tests.support.payment_files import DATA, csv_text, line, read, workbook, write

HEADER = "101 021000021 1234567892611281200A094101DEST BANK              HARBOR LIGHT LLC               "
BATCH = "5220HARBOR LIGHT                        1234567890PPDPAYROLL         261130   1021000020000001"
ENTRY = "6220260095937672879924       0000253479E0             OWEN MENON              0021000020000000"
OTHER = "627011000015B-95/9580438     0000131632E1             MENON, RAVI & CO        0021000020000001"
STATEMENT = "<BkToCstmrStmt><Stmt><Acct><Id><Othr><Id>7672879924</Id></Othr></Id></Acct></Stmt></BkToCstmrStmt>"
CAMT = f'<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.02">{STATEMENT}</Document>'
BAI = "01,121000358,7672879924,261128,0800,1,80,,2/\n02,7672879924,121000358,1,261127,,USD,2/\n03,7672879924,USD,010/\n"
MT940 = "{1:F01BANKDEFFXXXX}{2:I940X}{4:\r\n:20:7672879924\r\n:25:X/7672879924\r\n:28C:1\r\n:60F:C261127EUR1,00\r\n-}"
FILES = {
    "whole": ("\n".join([HEADER, BATCH, ENTRY, OTHER]), "ACH file"),
    "CRLF and trimmed": ("\r\n".join([HEADER.rstrip(), BATCH, ENTRY]), "ACH file"),
    "no file header": ("\n".join([BATCH, ENTRY]), "ACH file"),
    "entries only": (f"{ENTRY}\n{OTHER}\n", "ACH file"),
    "one entry": (OTHER, "ACH file"),
    "one line": (HEADER.ljust(94) + BATCH.ljust(94) + ENTRY.ljust(94) + OTHER.ljust(94), "ACH file"),
    "one line without a header": (BATCH.ljust(94) + ENTRY.ljust(94), "ACH file"),
    "a bank's order above it": (f"$$ADD ID=HARBOR BID='NWF'\n{HEADER}\n{BATCH}\n{ENTRY}\n", "ACH file"),
    "opened in a spreadsheet": (f'Column1\n{ENTRY}\n"{OTHER}"\n', "ACH file"),
    "camt.053": (f'<?xml version="1.0" encoding="UTF-8"?>\n{CAMT}', "account statement .camt.053"),
    "no prolog, a prefix": (
        '<n:Document xmlns:n="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08">',
        "account statement .camt.053",
    ),
    "a long comment": (f'<?xml version="1.0"?><!--{"=" * 600}-->{CAMT}', "account statement .camt.053"),
    "pain.001": (CAMT.replace("camt.053.001.02", "pain.001.001.03"), "file of payment orders for a bank .pain.001"),
    "MT940": (MT940, "account statement .MT940"),
    "MT940 without its envelope": (MT940[MT940.index(":20") : -2], "account statement .MT940"),
    "BAI2": (BAI, "account statement .BAI2"),
    "BAI2, blank line, CRLF": ("\n" + BAI.replace("\n", "\r\n"), "account statement .BAI2"),
}


@pytest.mark.parametrize("packed", ["", "gzip", "utf-16"])
@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_a_bank_is_refused_by_its_name(tmp_path: Path, kind: str, packed: str) -> None:
    """Whatever is at its beginning, however it is packed or encoded, the refusal names the kind and says what to do."""
    text, named = FILES[kind]
    content = gzip.compress(text.encode()) if packed == "gzip" else text.encode(packed or "utf-8")
    options = {"encoding": "utf-16"} if packed == "utf-16" else {}
    with pytest.raises(
        FileRefused,
        match=rf"payments\.csv: is an? {named}.*((export|name) (its|a file of) payments as CSV|cut off)",
    ) as refusal:
        read(write(tmp_path, content), **options)
    assert "7672879924" not in str(refusal.value)
    assert "580438" not in str(refusal.value)


def test_in_a_workbook(tmp_path: Path) -> None:
    """Opened in a spreadsheet and saved as a workbook, it is the same."""
    with pytest.raises(FileRefused, match="ACH file"):
        read(workbook(tmp_path, [[HEADER], [BATCH], [ENTRY]]))
    with pytest.raises(FileRefused, match="ACH file"):
        read(workbook(tmp_path, [[ENTRY], [OTHER]]))


@pytest.mark.parametrize("command", [["validate"], ["submit", "--dry-run"], ["map"]])
@pytest.mark.parametrize("text", [FILES[kind][0] for kind in ("whole", "entries only", "camt.053", "MT940", "BAI2")])
def test_every_command_says_that_alone(tmp_path: Path, command: list[str], text: str) -> None:
    """Exit 4, one message, nothing of the file in it."""
    done = Home(tmp_path).run(*command, write(tmp_path, text, "payroll.ach"))
    assert (done.returncode, done.stdout) == (4, "")
    assert "payroll.ach: is an " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "7672879924" not in done.stderr


@pytest.mark.skipif(not (DATA / "field").is_dir(), reason="the field's files are not here")
@pytest.mark.parametrize("name", ["nacha.ach", "nacha6.csv"])
@pytest.mark.parametrize("command", ["validate", "map"])
def test_ach_files_of_the_field(tmp_path: Path, name: str, command: str) -> None:
    """CASES.md: refused by name, no account number is printed."""
    done = Home(tmp_path).run(command, str(DATA / "field" / name))
    assert done.returncode == 4
    assert f"{name}: is an ACH file" in done.stderr
    assert "7672879924" not in done.stdout + done.stderr


@pytest.mark.parametrize("changes", [
    {"gatewayId": "622026009593"}, {"gatewayId": "101"}, {"gatewayId": "01"},
    {"achNameOnCheck": "622026009593,1001,CREDIT,FALSE,1234567890"}, {"billingLastName": "<camt.053>"},
    {"billingLastName": ":60F:C261127EUR1,00"},
])  # fmt: skip
def test_rows_that_look_a_little_like_one(tmp_path: Path, changes: dict[str, str]) -> None:
    """Numbers and words of such files in the cells of a payment file are cells."""
    cells = {name: f'"{cell}"' if "," in cell else cell for name, cell in changes.items()}
    assert read(write(tmp_path, csv_text(1) + line(**cells))).height == 2


def test_long_numbers_in_the_name_of_a_column_are_masked(tmp_path: Path) -> None:
    """Of a file without a header the first payment is taken for the names of columns: its account was shown whole."""
    header = ",".join(["0012345678", "Ada 98-7654-321-0", *csv_text(0).strip().split(",")[:12]])
    done = Home(tmp_path).run("validate", write(tmp_path, f"{header}\n"))
    told = done.stdout + done.stderr
    assert done.returncode == 4
    path = write(tmp_path, "Name,00123456789,Pay Date 2026-11-28,Q4 2026\nAda,1,x,y\n")
    told += Home(tmp_path).run("map", path).stdout
    assert "12345678" not in told
    assert "****6789" in told
    assert "Pay Date 2026-11-28" in told
