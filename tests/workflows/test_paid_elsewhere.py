"""Results of an unknown batch, and a gateway known as the other kind, suggest that a file may have been paid."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from batchpay.errors import BatchHeld, FileRefused, RunStopped, SettingsNotUsable
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.outcome import Outcome
from batchpay.payment import Environment, State
from batchpay.reports.results import HEADER, write_results
from batchpay.sending.limits import Limits
from batchpay.settings import LedgerSettings
from batchpay.workflows.check import refuse_moved, refuse_paid_elsewhere
from batchpay.workflows.run import RunRequest
from batchpay.writing.table import write_table
from tests.ledger.batches import columns, register
from tests.ledger.factories import LedgerFactory
from tests.workflows.desk import ACCEPTED, COLUMNS, PLAIN, Desk

LIVE, TEST = Environment.LIVE, Environment.TEST


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with one batch."""
    tmp_path.chmod(0o700)
    ledger = LedgerFactory(tmp_path).create()
    register(ledger, columns(ledger, [1, 2]))
    return ledger


def results(path: Path, batch: str, environment: str | None) -> Path:
    """Write results of two rows, as this version writes them, or without an environment as an earlier one did."""
    names = [name for name in HEADER if name != "environment" or environment is not None]
    values = {"row": "1", "batch": batch, "environment": environment, "state": "accepted"}
    write_table(path, names, [[values.get(name) for name in names]] * 2)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet", "xlsx"])
@pytest.mark.parametrize(
    ("named", "environment", "refused"),
    [("live", LIVE, True), ("test", TEST, True), ("test", LIVE, False), ("live", TEST, False), (None, LIVE, True)],
)
def test_results_of_an_unknown_batch_refuse_the_file(
    ledger: Ledger, tmp_path: Path, ending: str, named: str | None, environment: Environment, refused: bool
) -> None:
    """Only for the same environment: a test run's results say nothing of live money."""
    path = results(tmp_path / f"pay.results.{ending}", "0123456789ab", named)
    if refused:
        with pytest.raises(FileRefused, match=r"0123456789ab.*from a backup.*--paid-elsewhere-checked"):
            refuse_paid_elsewhere(ledger, path, environment)
    else:
        refuse_paid_elsewhere(ledger, path, environment)


def test_results_with_a_number_refuse_the_file_as_well(ledger: Ledger, tmp_path: Path) -> None:
    """The folder had a test run's results of that name, so another ledger's live results are next to them."""
    results(tmp_path / "pay.results.csv", "aaaaaaaaaaaa", "test")
    results(tmp_path / "pay.results-2.csv", ledger.find(None).batch, "live")
    refuse_paid_elsewhere(ledger, tmp_path / "pay.results.csv", LIVE)
    results(tmp_path / "pay.results-3.csv", "0123456789ab", "live")
    with pytest.raises(FileRefused, match=r"results-3\.csv has the results of batch 0123456789ab"):
        refuse_paid_elsewhere(ledger, tmp_path / "pay.results.csv", LIVE)
    refuse_paid_elsewhere(ledger, tmp_path / "nowhere" / "pay.results.csv", LIVE)


def test_results_that_a_spreadsheet_saved_refuse_the_file_as_well(ledger: Ledger, tmp_path: Path) -> None:
    """Its separator is a semicolon, and its encoding is not UTF-8."""
    path = tmp_path / "pay.results.csv"
    path.write_bytes("row;name;batch;environment\n1;Renée;0123456789ab;live\n".encode("cp1252"))
    with pytest.raises(FileRefused, match="0123456789ab"):
        refuse_paid_elsewhere(ledger, path, LIVE)


def test_results_of_a_known_batch_raise_no_alarm(ledger: Ledger, tmp_path: Path) -> None:
    """Last month's file of the same name was paid by this very ledger."""
    batch = ledger.find(None)
    write_results(ledger, batch, tmp_path / "pay.results.csv")
    refuse_paid_elsewhere(ledger, tmp_path / "pay.results.csv", batch.environment)


@pytest.mark.parametrize("content", [None, b"", b"a,b\n1,2\n", b"row,batch\n", b"\xff\xfe\x00", b"batch\n,\n"])
def test_what_is_not_results_raises_no_alarm(ledger: Ledger, tmp_path: Path, content: bytes | None) -> None:
    """No file, an empty one, another program's, only a header."""
    path = tmp_path / "pay.results.csv"
    if content is not None:
        path.write_bytes(content)
    refuse_paid_elsewhere(ledger, path, LIVE)
    refuse_paid_elsewhere(ledger, None, LIVE)


def environment(desk: Desk, environment: str, base_url: str = "http://127.0.0.1:9") -> None:
    """Set what kind of gateway payments are sent to, and where it is."""
    gateway = replace(desk.settings.gateway, base_url=base_url, environment=environment)
    desk.settings = replace(desk.settings, gateway=gateway)


def test_one_gateway_is_not_test_and_live_at_will(desk: Desk) -> None:
    """A mistyped environment would pay a whole file again: what was sent as test is no duplicate for live.

    A person who checked may say that the gateway has changed; from then on it is the other kind.
    """
    paid, late = desk.file("paid.csv", {"invoiceNumber": "A-1", "amount": "10.00"}), desk.folder / "late.csv"
    desk.submit(paid)
    desk.file("late.csv", {"invoiceNumber": "A-2", "amount": "20.00"})
    environment(desk, "live")
    for ask in (desk.submit, desk.dry_run):
        for path in (paid, late):
            with pytest.raises(
                SettingsNotUsable, match=r"as a test gateway, and is now .* a live one .*--paid-elsewhere"
            ):
                ask(path)
    assert desk.arrived == {"A-1": 1}
    desk.submit(late, looked_elsewhere="the gateway went live today")
    with closing(open_ledger(desk.settings.ledger, read_only=True)) as ledger:
        assert ledger.find(None).options["paid_elsewhere_checked"] == "the gateway went live today"
    desk.submit(desk.file("next.csv", {"invoiceNumber": "A-3", "amount": "30.00"}))
    environment(desk, "test")
    with pytest.raises(SettingsNotUsable, match="as a live gateway, and is now set to be a test one"):
        desk.submit(paid)
    assert desk.arrived == {"A-1": 1, "A-2": 1, "A-3": 1}


def test_who_looked_elsewhere_before_a_batch_went_on_stands_in_its_history(desk: Desk) -> None:
    """The reason was kept where the batch was new; of one that was known, its run says who looked, and why."""
    path = desk.file("pay.csv", *({"invoiceNumber": f"A-{number}", "amount": "10.00"} for number in (1, 2)))
    desk.submit(path, run=RunRequest(None, Limits(1)))
    desk.submit(path, looked_elsewhere="nothing of it is in the portal")
    assert desk.arrived == {"A-1": 1, "A-2": 1}
    assert [why for _, why in desk.events("started")] == [None, "nothing of it is in the portal"]


def test_who_has_looked_is_not_asked_again_for_the_rest(desk: Desk) -> None:
    """The same command is run again each night: where its first row was sent in spite of other results, the next is."""
    path = desk.file("pay.csv", *({"invoiceNumber": f"A-{number}", "amount": "10.00"} for number in (1, 2)))
    foreign = results(desk.folder / "other.results.csv", "0123456789ab", "test")
    desk.submit(path, looked_elsewhere="a rehearsal's", run=RunRequest(foreign, Limits(1)))
    results(foreign, "0123456789ab", "test")
    desk.submit(path, run=RunRequest(foreign))
    assert desk.arrived == {"A-1": 1, "A-2": 1}
    assert [why for _, why in desk.events("started")] == [None, None], "it stands with the batch"


def test_a_release_looks_at_results_beside_the_file_and_a_repetition_does_not(desk: Desk) -> None:
    """One row waits for its release: others may have paid it. Of what is paid or stays rejected nothing is sent."""
    desk.limit("50.00")
    rows = [{"invoiceNumber": "A-1", "amount": "10.00"}, {"invoiceNumber": "A-2", "amount": "99.00"}]
    path = desk.file("pay.csv", *rows)
    desk.submit(path)
    desk.limit("100.00")
    foreign = RunRequest(results(desk.folder / "other.results.csv", "0123456789ab", "test"))
    with pytest.raises(FileRefused, match="has the results of batch 0123456789ab"):
        desk.submit(path, release="seen by Kim", run=foreign)
    desk.submit(path, run=foreign)
    assert desk.arrived == {"A-1": 1}


def test_each_gateway_at_its_own_address_is_what_it_is(desk: Desk) -> None:
    """A test run makes no live payment a duplicate, nor the reverse, in whatever order they come."""
    path = desk.file("pay.csv", {"invoiceNumber": "A-1", "amount": "10.00"})
    for kind, address in (("test", "http://127.0.0.1:9"), ("live", "https://pay.example.com")) * 2:
        environment(desk, kind, address)
        desk.submit(path)
    assert desk.arrived == {"A-1": 2}


def with_another_ledger(desk: Desk) -> Desk:
    """Return someone else's desk: the same gateway, and a ledger that knows nothing."""
    ledger = LedgerSettings(
        url=str(desk.folder / "theirs" / "ledger.db"), key_file=str(desk.folder / "theirs" / "keys" / "ledger.key")
    )
    return replace(desk, settings=replace(desk.settings, ledger=ledger))


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_two_ledgers_do_not_pay_one_file_at_the_same_time(desk: Desk, ending: str) -> None:
    """The nightly run has a service's ledger; a person who thinks it did not run and submits by hand has another."""
    path = desk.folder / f"pay.{ending}"
    rows = [PLAIN | {"invoiceNumber": f"INV-{number}", "amount": "10.00"} for number in (1, 2)]
    write_table(path, COLUMNS, [[row.get(column) for column in COLUMNS] for row in rows])
    by_hand = with_another_ledger(desk)

    def submit_by_hand(_: str) -> Outcome:
        with pytest.raises(BatchHeld, match="another run is working on this file"):
            by_hand.submit(path)
        return ACCEPTED

    desk.answer = submit_by_hand
    assert desk.submit(path).exit_code == 0
    assert desk.arrived == {"INV-1": 1, "INV-2": 1}


class Archives:
    """A gateway that is asked for its accounts while another run ends and moves the file away."""

    def __init__(self, path: Path, following: Path | None) -> None:
        self._path, self._following = path, following

    def check_connection(self) -> None:
        """Nothing was to be checked yet."""

    def refused(self, gateway_ids: Iterable[str]) -> dict[str, str]:
        """Every account is accepted, and the file disappears, or the following one takes its place."""
        self._path.rename(self._path.with_suffix(".archived"))
        if self._following is not None:
            shutil.copy(self._following, self._path)
        return {}


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_file_that_was_archived_meanwhile_is_not_paid_by_another_ledger(desk: Desk, is_followed: bool) -> None:
    """Its results were moved with it; the ledger that paid it just says that nothing is left to send."""
    path = desk.file("pay.csv", {"invoiceNumber": "INV-1", "amount": "10.00"})
    following = desk.file("next.csv", {"invoiceNumber": "INV-2", "amount": "20.00"}) if is_followed else None
    desk.submit(path)
    with pytest.raises(FileRefused, match="was moved or replaced while it was read"):
        with_another_ledger(desk).submit(path, preflight=Archives(path, following))
    path.with_suffix(".archived").rename(path)
    assert desk.submit(path, preflight=Archives(path, following)).exit_code == 0
    assert desk.arrived == {"INV-1": 1}


def test_what_came_through_a_pipe_was_not_moved() -> None:
    """It has no place at which another run could have found it."""
    refuse_moved("-", None)


class Down:
    """A gateway that stops answering when the first payment is about to be sent."""

    def check_connection(self) -> None:
        """Nobody answers."""
        raise RunStopped("the gateway can't be reached")

    def refused(self, gateway_ids: Iterable[str]) -> dict[str, str]:
        """Every account was accepted a moment ago."""
        return {}


def test_a_batch_that_another_ledger_paid_since_is_not_resumed(desk: Desk) -> None:
    """By hand it was registered and not sent; the nightly run paid it; by hand the same command is run again."""
    path = desk.file("pay.csv", {"invoiceNumber": "INV-1", "amount": "10.00"})
    lying, by_hand = RunRequest(desk.folder / "pay.results.csv"), with_another_ledger(desk)
    assert by_hand.submit(path, preflight=Down()).of(State.PENDING).rows == 1
    desk.submit(path, run=lying)
    with pytest.raises(FileRefused, match="which this ledger does not know"):
        by_hand.submit(path, run=lying)
    assert desk.arrived == {"INV-1": 1}
    desk.submit(path, run=lying)  # nothing is left to send, so nobody asks who else paid
    by_hand.submit(path, run=lying, looked_elsewhere="the other ledger is a rehearsal's")
    assert desk.arrived == {"INV-1": 2}
    assert by_hand.events("started")[-1][1] == "the other ledger is a rehearsal's"
