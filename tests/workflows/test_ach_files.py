"""ACH files and a ledger: a social security number is known again by a digest, and stored nowhere."""

from __future__ import annotations

import csv

import pytest

from batchpay.workflows.run import RunRequest
from tests.support.ach_files import ach_file, entry
from tests.workflows.desk import Desk

PEOPLE = [entry("22", 100 + n, f"5550123{n}", payment_id=who, name="ANN LEE") for n, who in enumerate(
    ("123-45-6789", "123456789", "987-65-4321"))]  # fmt: skip
MAP = """
[split]
"{billingFirstName} {billingLastName}" = "achNameOnCheck"
[fixed]
gatewayId = "1001"
achAgreementFlag = "1"
recurringIndicator = "FALSE"
[defaults]
shipping = "billing"
"""


@pytest.mark.usefixtures("on_both")
def test_a_social_security_number_is_a_digest_by_which_its_payments_are_known_again(desk: Desk) -> None:
    """They had no paymentId: another export of the payroll, a cent off, was paid as well."""
    path, mapped, results = desk.folder / "payroll.ach", desk.folder / "map.toml", desk.folder / "results.csv"
    path.write_bytes(ach_file(PEOPLE))
    mapped.write_text(MAP)
    first = desk.submit(path, run=RunRequest(results), map_file=str(mapped))
    assert first.exit_code == 0
    with results.open() as lines:
        ids = [row["paymentId"] for row in csv.DictReader(lines)]
    who = ids[0].partition("-")[0]
    assert (len(who), ids[:2]) == (16, [f"{who}-2026-11-24-1", f"{who}-2026-11-24-2"])
    assert not ids[2].startswith(who) and ids[2].endswith("-2026-11-24-1")
    assert desk.submit(path, map_file=str(mapped)).batch == first.batch

    path.write_bytes(ach_file([entry("22", 999, "55501230", payment_id="123456789", name="ANN LEE")]))
    assert desk.dry_run(path, map_file=str(mapped)).verdict.counts == {"paymentId.duplicate": 1}
    assert desk.submit(path, map_file=str(mapped)).exit_code == 3
    assert desk.arrived.total() == 3
    path.unlink()
    kept = b"".join(one.read_bytes() for one in desk.folder.rglob("*") if one.is_file())
    assert not any(number in kept for number in (b"123456789", b"123-45-6789", b"987654321", b"987-65-4321"))
