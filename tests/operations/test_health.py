"""Health: each check in its good and its bad case, over real ledgers, and the exit code that monitoring sees."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from batchpay.ledger.contract import Ledger
from batchpay.ledger.records import BatchSummary, LedgerRow
from batchpay.operations import health as checks
from batchpay.operations.health import LastCall, banking_time, last_call_path, read_last_call, write_last_call
from batchpay.outcome import Answer, Outcome
from batchpay.payment import State
from batchpay.settings import GatewaySettings, LimitsSettings, PolicySettings, Settings
from batchpay.workflows.health import HealthLimits, health
from tests.support.ledger_factory import ORIGIN, Planned, add_batch, ledger_in, ledger_settings

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(gateway=GatewaySettings(base_url=ORIGIN), ledger=ledger_settings(tmp_path))


def found(
    settings: Settings, limits: HealthLimits | None = None, now: datetime | None = None
) -> dict[str, checks.HealthFinding]:
    looked = health(settings, limits or HealthLimits(), now or datetime.now(UTC))
    return {one.check: one for one in looked.findings}


def test_all_is_well(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger whose rows are all final, on a disk: every check is good."""
    monkeypatch.setattr("batchpay.ledger.paths.file_system", lambda *_: "ext4")
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1), Planned(2, State.DECLINED)])
    findings = found(settings)
    assert {name: one.exit_code for name, one in findings.items()} == {
        "ledger": 0, "doubts": 0, "batches": 0, "backup": 0, "last call": 0, "disk": 0,
    }  # fmt: skip


def test_a_doubt_is_told_with_its_age_rows_and_amount(settings: Settings, tmp_path: Path) -> None:
    """One row in doubt in one of two batches: 7, with the batch to settle."""
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1)])
        name = add_batch(ledger, [Planned(1, State.IN_DOUBT, 123456), Planned(2)], file="b.csv")
    doubts = found(settings, now=datetime.now(UTC) + 3 * HOUR)["doubts"]
    assert doubts.exit_code == 7
    assert doubts.message == f"1 row in doubt, 1,234.56, the oldest for 3 h: batchpay resolve {name}"
    assert doubts.details["batches"][0]["batch"] == name


def test_what_a_killed_run_was_sending_is_a_doubt(settings: Settings, tmp_path: Path) -> None:
    """Eight payments were under way when the run was killed, nothing else was left to send, and all was well: 0."""
    with ledger_in(tmp_path) as ledger:
        rows = [Planned(1), Planned(2, State.SENDING, 300), Planned(3, State.SENDING, 400, "CREDIT")]
        name = add_batch(ledger, [*rows, Planned(4, State.IN_DOUBT, 50)])
        with ledger.lock(ledger.find(name).digest):
            assert found(settings)["doubts"].message.startswith("1 row in doubt, 0.50, the oldest for 0 min")
    doubts = found(settings)["doubts"]
    assert doubts.exit_code == 7
    told = "3 rows in doubt, DEBIT 3.50, CREDIT 4.00, the oldest for 0 min: batchpay resolve"
    assert doubts.message == f"{told} {name}"


def test_each_command_that_is_advised_is_one(settings: Settings, tmp_path: Path) -> None:
    """`batchpay resolve a, b` is none, nor is a purge without a reason: what is copied from the message must run."""
    with ledger_in(tmp_path) as ledger:
        rows = [Planned(1, State.IN_DOUBT), Planned(2, State.PENDING)]
        one, two = (add_batch(ledger, rows, file=file) for file in ("a.csv", "b.csv"))
    told = found(settings)
    for check, command in (("doubts", "resolve"), ("batches", "resume")):
        advised = told[check].message.partition(": ")[2].split("; ")
        assert sorted(advised) == sorted(f"batchpay {command} {name}" for name in (one, two))
    for days, command in ((0, "purge --older-than DAYS --reason TEXT"), (400, "purge --reason TEXT")):
        unfinished = checks.retention([], days, unfinished=True, now=NOW)
        assert unfinished.message.endswith(f": batchpay ledger {command}")


def test_answers_that_were_set_aside_are_told_until_a_run_has_taken_them_in(settings: Settings, tmp_path: Path) -> None:
    """The disk filled up with the last rows of a batch: nothing was pending nor in doubt, and all was well: 0."""
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, [Planned(1, State.PENDING), Planned(2, State.PENDING), Planned(3)])
        accepted = Outcome(State.ACCEPTED, "success", Answer(200), bytes_sent=900)
        with ledger.lock(ledger.find(name).digest):
            run = ledger.start(name, "ada")
            run.commit([1, 2], [])
            run.spill([(1, accepted), (2, accepted)])
            run.close()
            assert "answers" not in found(settings)
        told = found(settings)
        assert (told["doubts"].exit_code, told["answers"].exit_code) == (0, 6)
        assert told["answers"].message.endswith(f"to 2 rows of batch {name}: batchpay resume {name}")
        with ledger.lock(ledger.find(name).digest):
            ledger.start(name, "ada").finish(None)
        assert "answers" not in found(settings)


def test_a_run_that_begins_meanwhile_sets_no_answer_aside(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a killed run, and the next one begins between two looks: health said that answers were set aside."""
    with ledger_in(tmp_path) as ledger, ExitStack() as running:
        name = add_batch(ledger, [Planned(1), Planned(2, State.SENDING)])
        digest, abandoned = ledger.find(name).digest, type(ledger).abandoned
        looks, last = count(1), 0

        def begun(self: Ledger, batch: BatchSummary) -> list[LedgerRow]:
            if next(looks) == last:
                running.enter_context(ledger.lock(digest))
            return abandoned(self, batch)

        monkeypatch.setattr(type(ledger), "abandoned", begun)
        assert found(settings)["doubts"].exit_code == 7
        looks, last = count(1), next(looks) - 1
        told = found(settings)
        assert ledger.is_held(digest)
        assert "answers" not in told


def test_debits_and_credits_are_not_added_up(settings: Settings, tmp_path: Path) -> None:
    """Each amount of the two stands by itself, over all batches; where that isn't known, it is a control total."""
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1, State.IN_DOUBT, 300), Planned(2, State.PENDING, 60_000)])
        rows = [Planned(1, State.IN_DOUBT, 100, "CREDIT"), Planned(2, State.PENDING, 70_000, "CREDIT")]
        add_batch(ledger, rows, file="b.csv")
    low = replace(settings, limits=LimitsSettings(max_amount="100.00"))
    told = found(low)
    assert told["doubts"].message.startswith("2 rows in doubt, DEBIT 3.00, CREDIT 1.00, the oldest")
    assert told["doubts"].details["amount"] == "4.00"
    assert told["batches"].message.startswith("2 rows to be sent, DEBIT 600.00, CREDIT 700.00, the oldest")
    assert ": held back by today's rules (batch " in told["batches"].message, "the same rows were counted twice"
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1, State.PENDING, 100)], file="c.csv")
    assert "; 2 rows, control total 1,300.00, held back by today's rules (batch " in found(low)["batches"].message


def test_a_stopped_batch_is_told_and_a_running_one_is_not(settings: Settings, tmp_path: Path) -> None:
    """Pending rows: 6, unless a run holds their batch at this moment."""
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, [Planned(1), Planned(2, State.PENDING, 500)], stopped="the gateway is unreachable")
        stopped = found(settings)["batches"]
        assert stopped.exit_code == 6
        assert "1 row to be sent, 5.00" in stopped.message
        assert "(the gateway is unreachable)" in stopped.message
        with ledger.lock(ledger.find(name).digest):
            running = found(settings)["batches"]
        assert (running.exit_code, running.details["running"]) == (0, [name])


def test_rows_that_are_held_back_are_not_sent_by_a_resume(settings: Settings, tmp_path: Path) -> None:
    """Health said `batchpay resume` night after night, and it sent none of them: the limit had been lowered."""
    with ledger_in(tmp_path) as ledger:
        held = add_batch(ledger, [Planned(1, State.PENDING, 50_000)])
        both = add_batch(ledger, [Planned(1, State.PENDING, 500), Planned(2, State.PENDING, 60_000)], file="b.csv")
    lowered = replace(settings, limits=LimitsSettings(max_amount="100.00"))
    text = found(lowered)["batches"].message
    assert f": batchpay resume {both}; 2 rows, 1,100.00, held back by today's rules (batch {held}, {both})" in text
    stale = replace(lowered, policy=PolicySettings(stale_days=0))
    assert f": batchpay resume {both} --stale --reason TEXT; 2 rows" in found(stale)["batches"].message


def test_a_ledger_that_a_restart_would_lose_is_a_warning(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood there as an alarm that began with `ok`."""
    monkeypatch.setattr("batchpay.ledger.paths.file_system", lambda *_: "tmpfs")
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1)])
    findings = found(settings)
    assert {name: one.word for name, one in findings.items() if one.word != "ok"} == {"ledger place": "warn"}
    assert findings["ledger place"].message.endswith("nobody may know any more what was paid")


def test_no_ledger_is_a_finding(settings: Settings) -> None:
    """A ledger that is not there makes 5, and does not keep the other checks from being made."""
    findings = found(settings, HealthLimits(inbox=Path("/nowhere/inbox")))
    assert (findings["ledger"].exit_code, findings["inbox"].exit_code) == (5, 5)


def test_a_file_that_waits_in_the_inbox(tmp_path: Path) -> None:
    """Whole or not, known ending or not: a file that lies there for two hours is told; control files are not."""
    for name in ("pay.csv", "pay.csv.control.toml", "cut.part", ".hidden", "new.csv"):
        (tmp_path / name).write_text("x")
    for name in ("pay.csv", "cut.part"):
        os.utime(tmp_path / name, (1, 1))
    now = datetime.now(UTC) + timedelta(minutes=90)
    waits = checks.inbox(tmp_path, HOUR, now)
    assert (waits.exit_code, len(waits.details["files"])) == (6, 3)
    assert checks.inbox(tmp_path, 2 * HOUR, now).exit_code == 0
    assert waits.message.startswith("3 files wait in the inbox, ")
    os.utime(tmp_path / "pay.csv", (4e9, 4e9))
    assert checks.inbox(tmp_path, HOUR, now).message.startswith("3 files wait"), "of a computer whose clock is ahead"
    (tmp_path / "one").mkdir()
    (tmp_path / "pay.csv").rename(tmp_path / "one" / "pay.csv")
    assert checks.inbox(tmp_path / "one", HOUR, now).message.startswith("1 file waits in the inbox, pay.csv for ")
    (tmp_path / "one" / "pay.csv").rename(tmp_path / "one" / "pay.rejects.csv")
    told = checks.inbox(tmp_path / "one", HOUR, now).message
    assert told.endswith("to pay a corrected one, rename it or add a control file"), "a quiet call never said why"


def test_a_file_that_came_while_the_clock_was_ahead(tmp_path: Path) -> None:
    """No run takes it before that time has come, and nobody was told."""
    (tmp_path / "pay.csv").write_text("x")
    waits = checks.inbox(tmp_path, HOUR, datetime.now(UTC) - timedelta(minutes=90))
    assert (waits.exit_code, "pay.csv, dated ahead of this machine's clock" in waits.message) == (6, True)
    assert checks.inbox(tmp_path, HOUR, datetime.now(UTC) - timedelta(minutes=30)).exit_code == 0


@pytest.mark.parametrize(
    ("begin", "end", "hours"),
    [
        ("2026-11-20T22:00", "2026-11-23T08:00", 10),  # Friday to Monday: the weekend does not count
        ("2026-11-23T02:00", "2026-11-24T02:00", 24),
        ("2026-11-25T22:00", "2026-11-27T02:00", 4),  # over Thanksgiving
        ("2026-11-21T10:00", "2026-11-21T11:00", 0),
    ],
)
def test_time_on_banking_days(begin: str, end: str, hours: int) -> None:
    """No alarm each weekend: only hours of banking days count."""
    stretch = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (begin, end)]
    assert banking_time(stretch[0], stretch[1]) == hours * HOUR


def test_a_call_that_is_overdue() -> None:
    """Never, too long ago, and lately; a call that ended with 6 is no completed one."""
    late = LastCall(NOW, 6, NOW - 27 * HOUR)
    assert checks.last_call(None, 26 * HOUR, NOW).exit_code == 6
    assert checks.last_call(None, None, NOW).exit_code == 0
    assert checks.last_call(late, 26 * HOUR, NOW).exit_code == 6
    assert checks.last_call(late, 28 * HOUR, NOW).exit_code == 0
    assert checks.last_call(LastCall(NOW, 6, None), 26 * HOUR, NOW).exit_code == 6
    # A call with an empty inbox while the clock was ahead: for as long, nobody heard that all calls since had failed.
    ahead = checks.last_call(LastCall(NOW, 6, NOW + 2 * HOUR), 26 * HOUR, NOW)
    assert (ahead.exit_code, "ahead of this machine's clock" in ahead.message) == (6, True)
    assert checks.last_call(LastCall(NOW, 0, NOW + HOUR / 2), 26 * HOUR, NOW).exit_code == 0
    never = checks.last_call(LastCall(NOW, 6, None), None, NOW).message  # it was 'the last completed call ended never'
    assert never.startswith("no call has completed yet (one ended ") and never.endswith(" with exit code 6)")


@pytest.mark.parametrize(
    ("last", "on_banking_days", "code"),
    [
        (None, True, 6),
        (NOW - 27 * HOUR, False, 6),
        (NOW - 25 * HOUR, False, 0),
        (datetime(2026, 11, 20, 20, 0, tzinfo=UTC), False, 6),  # Friday evening, seen on Monday morning
        (datetime(2026, 11, 20, 20, 0, tzinfo=UTC), True, 0),
        (NOW + 2 * HOUR, False, 6),  # the clock was ahead: nothing would be overdue until then
    ],
)
def test_a_file_that_never_came(last: datetime | None, on_banking_days: bool, code: int) -> None:
    """A payroll file that nobody sends was a perfect night."""
    now = datetime(2026, 11, 23, 12, 0, tzinfo=UTC) if last and last.day == 20 else NOW
    assert checks.last_file(last, 26 * HOUR, now, on_banking_days=on_banking_days).exit_code == code


def test_the_last_file_is_the_ledgers(settings: Settings, tmp_path: Path) -> None:
    """Whoever expects a file finds when one was last registered; others see no such line."""
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1)])
    assert "last file" not in found(settings)
    assert found(settings, HealthLimits(expect_file=HOUR))["last file"].exit_code == 0
    late = found(settings, HealthLimits(expect_file=HOUR), datetime.now(UTC) + 2 * HOUR)["last file"]
    assert late.exit_code == 6 and "expected every 60 min" in late.message


def test_the_last_completed_call_is_kept_over_one_that_failed(tmp_path: Path) -> None:
    """A damaged file says that nothing is known."""
    path = last_call_path(tmp_path / "ledger.db")
    write_last_call(path, NOW - HOUR, 3, completed=True)
    write_last_call(path, NOW, 6, completed=False)
    assert read_last_call(path) == LastCall(NOW, 6, NOW - HOUR)
    path.write_text("{")
    assert read_last_call(path) is None


def test_a_backup_that_is_overdue() -> None:
    """Never backed up is told only where somebody expects a backup."""
    assert checks.backup(None, None, NOW).exit_code == 0
    assert checks.backup(None, 24 * HOUR, NOW).exit_code == 6
    assert checks.backup(NOW - 25 * HOUR, 24 * HOUR, NOW).exit_code == 6
    assert checks.backup(NOW - 23 * HOUR, 24 * HOUR, NOW).exit_code == 0
    assert checks.backup_of_database(None).exit_code == 0
    assert checks.backup_of_database(24 * HOUR).exit_code == 6


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Too little room for the outcomes of a run: 5. A full disk of the witness stops every run, and health was well."""
    ledger, witness = tmp_path / "ledger.db", tmp_path / "keys" / "ledger.witness"
    witness.parent.mkdir()
    free = checks.disk(ledger, witness)
    assert (free.exit_code, free.message.endswith(" on the ledger's disk")) == (0, True)
    assert checks.disk(None, witness).message.endswith(" on the witness's disk")
    real = os.statvfs

    def full(folder: Path) -> os.statvfs_result:
        values = list(real(folder))
        values[4] = 0 if folder == witness.parent else values[4]
        return os.statvfs_result(values)

    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", full)
        told = checks.disk(ledger, witness)
    assert (told.exit_code, told.message) == (5, "0 MiB free on the witness's disk")
    monkeypatch.setattr(checks, "DISK_FREE_BYTES_MIN", 1 << 60)
    assert checks.disk(ledger, witness).exit_code == 5
