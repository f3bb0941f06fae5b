"""Rows that don't fit the table, beside good ones: these are sent, whatever is done with the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.in_process import Caller
from tests.support.payment_files import DATA, HEADER, line

NAMES = ("paymentId", *HEADER, "note")


def _own(tmp_path: Path) -> Path:
    """A short row, an amount of letters with a line break in its last cell, an id twice, five good rows."""
    short = ",".join(line(amount="1.00").split(",")[:-1])
    good = [f"G{at}," + line(amount=f"2{at}.00", end=",\n") for at in range(5)]
    twice = "C," + line(amount="12.00", end=",x\n")
    text = [",".join(NAMES), "\n", f"A,{short}\n", twice, "D," + line(amount="xx", end=',"x\r\ny"\n'), twice, *good]
    path = tmp_path / "own.csv"
    path.write_bytes("".join(text).encode())
    return path


@pytest.mark.parametrize("rejects", [None, "r.csv", "r.xlsx", "r.parquet"])
@pytest.mark.parametrize("of_field", [False, True])
def test_good_rows_are_sent(call: Caller, tmp_path: Path, of_field: bool, rejects: str | None) -> None:
    """CASES.md, ragged_and_quoted_crlf.csv: exit 3 with and without --rejects, the good rows are sent."""
    path = DATA / "field" / "ragged_and_quoted_crlf.csv" if of_field else _own(tmp_path)
    if not path.exists():
        pytest.skip("the field's files are not here")
    call("ledger", "init")
    more = ["--rejects", str(tmp_path / rejects)] if rejects else []
    done = call("submit", str(path), "--results", str(tmp_path / "results.csv"), *more)
    assert (done["exit_code"], done["accepted"], done["rejected"]) == (3, 5, 4)
    assert call.exit_code("validate", str(path), *more) == 3
