"""The same bills under other names: rejected, reported in one line, let through only when a person says so."""

from __future__ import annotations

import json

from tests.support.command import Home, small_file
from tests.support.oracle import Oracle


def test_an_export_that_renumbers_its_payments_is_rejected(oracle_home: Home, oracle: Oracle) -> None:
    """The whole payroll was once paid again under new paymentIds; now check, dry run and submission say why not.

    --allow-duplicates lets it through: counted, listed with batch and row, and recorded with its reason.
    """
    first = small_file(oracle_home.path / "a.csv", 12)
    paid = oracle_home.json("submit", "a.csv")
    renamed = first.read_text().replace("INV-", "inv-")
    identity = renamed.splitlines()[0].split(",").index("paymentId")
    lines = [line.split(",") for line in renamed.splitlines()]
    for number, cells in enumerate(lines[1:], start=100):
        cells[identity] = f"NEW-{number}"
    (oracle_home.path / "b.csv").write_text("\n".join(map(",".join, lines)) + "\n")

    told = f"12 of 12 rows, {float(paid['amount']['accepted']):,.2f}, are the same bills as batch {paid['batch']} of "
    for command in (("validate",), ("submit", "--dry-run"), ("submit",)):
        found = oracle_home.json(*command, "b.csv")
        assert (found["exit_code"], found["rejected"], found["counts"]) == (3, 12, {"row.duplicate": 12}), command
        assert [note for note in found["notes"] if note.startswith(told)], command
    checked = oracle_home.json("validate", "b.csv", "--max-errors", "1")
    assert f"is the same bill as line 2 of batch {paid['batch']} of " in checked["errors"][0]["message"]
    assert "--allow-duplicates --reason" in checked["errors"][0]["message"]

    (oracle_home.path / "c.csv").write_text((oracle_home.path / "b.csv").read_text().replace("NEW-", "NEWER-"))
    sent = oracle_home.json("submit", "c.csv", "--allow-duplicates", "--reason", "two weeks in one")
    assert (sent["accepted"], sent["allowed_duplicates"]["rows"]) == (12, 12)
    assert sent["allowed_duplicates"]["amount"] == sent["amount"]["accepted"]
    assert sent["allowed_duplicates"]["list"][0] == {"row": 1, "batch": paid["batch"], "earlier_row": 1}
    kept = oracle_home.json("status", sent["batch"])["allowed_duplicates"]
    assert (kept["reason"], kept["list"]) == ("two weeks in one", sent["allowed_duplicates"]["list"])
    assert json.dumps(sent["notes"]).count("duplicates that were allowed: 12 rows") == 1

    (oracle_home.path / "d.csv").write_text(first.read_text().replace("INV-", "X-"))
    ids = oracle_home.json("submit", "d.csv", "--allow-duplicates", "--reason", "again")
    assert (ids["rejected"], ids["counts"]) == (12, {"paymentId.duplicate": 12}), "a paymentId is never lifted"
    assert sum(oracle.received().values()) == 24
