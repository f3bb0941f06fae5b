"""The next file of the same name, whose outputs replace no other's; and the same bills under other names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.command import Home, small_file
from tests.support.oracle import Oracle


def with_a_bad_row(path: Path, first: int) -> Path:
    """Write a file whose last row is rejected."""
    small_file(path, 3, first=first)
    path.write_text(path.read_text().replace(f",{first + 2}.25,", ",much,"))
    return path


def test_the_next_file_comes_while_the_last_one_runs(oracle_home: Home, oracle: Oracle) -> None:
    """It is not archived unread, and is paid by the next run; there are four separate outputs."""
    folder, pay = oracle_home.path, with_a_bad_row(oracle_home.path / "pay.csv", 1)
    arguments = ("submit", "pay.csv", "--archive", "done", "--rate", "2")
    with oracle_home.start(*arguments, stdout=subprocess.PIPE) as running:
        assert oracle.gets(1, running)
        with_a_bad_row(folder / "next.csv", 500).rename(pay)
        output, _ = running.communicate()
    assert running.returncode == 3
    assert "pay.csv is not archived" in output
    assert "500" in pay.read_text()

    told = oracle_home.json("submit", "pay.csv", "--archive", "done")
    assert (told["accepted"], told["results"], told["rejects"]) == (2, "pay.results-2.csv", "pay.rejects-2.csv")
    assert not pay.exists()
    assert "500" in (folder / "done" / "pay.csv").read_text()
    for kind, first, second in (("results", "INV-1,", "INV-500,"), ("rejects", "INV-3,", "INV-502,")):
        texts = [(folder / f"pay.{kind}{number}.csv").read_text() for number in ("", "-2")]
        assert [(first in text, second in text) for text in texts] == [(True, False), (False, True)]

    pay.write_bytes((folder / "done" / "pay.csv").read_bytes())
    told = oracle_home.json("submit", "pay.csv", "--normalize")
    assert (told["results"], told["rejects"]) == ("pay.results-2.csv", "pay.rejects-2.csv")
    assert len(list(folder.glob("pay.re*"))) == 4


def test_files_of_one_name_from_two_folders_are_sent_in_one_call(oracle_home: Home) -> None:
    """The second was refused with exit code 2, since its results would have replaced the first's."""
    for number, name in enumerate(("x", "y")):
        (oracle_home.path / name).mkdir()
        with_a_bad_row(oracle_home.path / name / "pay.csv", 1 + 500 * number)
    told = oracle_home.json("submit", "x/pay.csv", "y/pay.csv", "--out", "oo")
    assert [(one["accepted"], one["results"], one["rejects"]) for one in told["files"]] == [
        (2, "oo/pay.results.csv", "oo/pay.rejects.csv"), (2, "oo/pay.results-2.csv", "oo/pay.rejects-2.csv"),
    ]  # fmt: skip


def test_one_batch_that_is_all_rejected_does_not_fill_the_folder(oracle_home: Home) -> None:
    """The same rows rejected again and again are the same file, though no results name the batch."""
    file = small_file(oracle_home.path / "pay.csv", 2)
    file.write_text(file.read_text().replace(".25,", ".2,"))
    for _ in range(3):
        told = oracle_home.json("submit", "pay.csv")
        assert (told["results"], told["rejects"]) == ("pay.results.csv", "pay.rejects.csv")
    corrected = small_file(oracle_home.path / "pay.csv", 2, first=50)
    told = oracle_home.json("submit", str(corrected))
    assert told["rejects"] is None
    assert "format" in (oracle_home.path / "pay.rejects.csv").read_text()


def test_a_check_replaces_only_what_a_check_wrote(oracle_home: Home) -> None:
    """Validate has no batch: its own rejects are replaced, those next to a batch's results are not."""
    file = with_a_bad_row(oracle_home.path / "pay.csv", 1)
    told = [oracle_home.json("validate", "pay.csv", "--rejects", "check.csv") for _ in range(2)]
    assert {one["rejects"] for one in told} == {"check.csv"}
    with_a_bad_row(file, 10)
    assert oracle_home.json("validate", "pay.csv", "--rejects", "check.csv")["rejects"] == "check.csv"
    oracle_home.json("submit", "pay.csv")
    with_a_bad_row(file, 20)
    assert oracle_home.json("validate", "pay.csv", "--rejects", "pay.rejects.csv")["rejects"] == "pay.rejects-2.csv"


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
