"""The nightly calls with rows that have a day: `submit --inbox` and `resume --due` send what is due, of every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import pytest

from batchpay.ledger.open import open_ledger
from batchpay.settings import LedgerSettings
from tests.model import clock
from tests.support.command import small_file
from tests.support.in_process import Caller

TODAY = datetime.now(UTC).date() + timedelta(days=1)
LINE = ("submit", "--inbox", "in", "--archive", "done", "--out", "out")
Register = Callable[..., None]


def day(days: int) -> date:
    return TODAY + timedelta(days=days)


def at_noon(days: int) -> None:
    """Make it noon so many days after `TODAY`."""
    clock.offset_s = (datetime.combine(day(days), time(12), UTC) - datetime.now(UTC)).total_seconds()
    clock.exchange()


@pytest.fixture
def put(call: Caller) -> Iterator[Register]:
    """Put files into the inbox whose rows have days (row, days after `TODAY`); the days are those of UTC."""
    for folder in ("in", "done", "out"):
        Path(folder).mkdir()
    Path("batchpay.toml").write_text('[policy]\nzone = "UTC"\n')
    at_noon(0)
    yield _put
    clock.restore()


def _put(name: str, first: int, pay_on: Mapping[int, int]) -> None:
    path = small_file(Path("in") / name, 3, first=first)
    header, *rows = path.read_text().splitlines()
    days = [f"{day(pay_on[row]):%m/%d/%Y}" if row in pay_on else "" for row in range(1, 4)]
    lines = [f"{header},payOn", *(f"{row},{one}" for row, one in zip(rows, days, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    Path("in", f"{name}.control.toml").write_text("rows = 3\n")


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir() if not path.name.endswith(".toml"))


def test_each_night_sends_what_is_due_first_of_all(call: Caller, put: Register) -> None:
    """The file is archived once the rest is scheduled: later nights go by the ledger, also for days they missed."""
    put("a.csv", 1, {2: 1, 3: 3})
    first = call(*LINE, "--metrics-file", "night.prom")
    assert (first["exit_code"], first["accepted"], first["pending"]) == (0, 1, 2)
    lines = [line for line in Path("night.prom").read_text().splitlines() if not line.startswith("#")]
    metrics = dict(line.rsplit(" ", 1) for line in lines)
    assert metrics['batchpay_scheduled_rows{environment="test"}'] == "2"
    assert metrics['batchpay_waiting_batches{environment="test"}'] == "0"
    assert sum(int(value) for name, value in metrics.items() if "scheduled_amount_cents" in name) == 550
    next_day = datetime.combine(day(1), time(), UTC).timestamp()
    assert metrics['batchpay_next_pay_on_timestamp_seconds{environment="test"}'] == f"{next_day:.3f}"
    assert (first["scheduled"]["rows"], first["next_pay_on"]) == (2, day(1).isoformat())
    assert (names("in"), names("done")) == ([], ["a.csv"])
    assert call(*LINE) == {"files": [], "exit_code": 0}, "nothing is due again on the same day"

    at_noon(1)
    put("b.csv", 11, {1: 2})
    both = call(*LINE)
    assert [(one["file"], one["accepted"], one["scheduled"]["rows"]) for one in both["files"]] == [
        ("in/a.csv", 2, 1), ("in/b.csv", 2, 1),
    ]  # fmt: skip
    assert (both["exit_code"], both["scheduled"]["rows"], both["next_pay_on"]) == (0, 2, day(2).isoformat())
    assert both["files"][0]["results"] == "out/a.results.csv"

    at_noon(5)
    told = call.text("resume", "--due", "--out", "out")
    assert f"1 row overdue since {day(3):%m/%d/%Y}\n" in told, "and not that it was sent: a limit may hold it back"
    assert f"1 row overdue since {day(2):%m/%d/%Y}\n" in told
    assert {one["accepted"] for one in call("status")["batches"]} == {3}
    assert call("resume", "--due") == {"files": [], "exit_code": 0}
    assert call.text("resume", "--due") == "nothing is due\n"


def test_a_named_file_sends_its_own_batch_alone(call: Caller, put: Register) -> None:
    """A person who submits one file did not ask for the others."""
    put("a.csv", 1, {2: 1})
    call(*LINE)
    at_noon(1)
    assert call("submit", str(small_file(Path("b.csv"), 2, first=21)))["accepted"] == 2
    (waits,) = (one for one in call("status")["batches"] if one["pending"])
    assert (waits["accepted"], waits["exit_code"], waits["scheduled"]["rows"]) == (2, 6, 0)
    assert call("resume", "--due")["accepted"] == 3


def test_a_batch_that_waits_for_a_person_holds_up_no_other(call: Caller, put: Register) -> None:
    """Its day came so long ago, with nobody there, that it may have been paid otherwise: 8, not 2, for a nightly call.

    A day that came later in the same batch is sent all the same.
    """
    put("a.csv", 1, {1: 1, 2: 1, 3: 1})
    put("b.csv", 11, {1: 1, 2: 14})
    call(*LINE)
    at_noon(15)
    late = call("resume", "--due")
    old, mixed = late["files"]
    assert (late["exit_code"], old["exit_code"], mixed["exit_code"]) == (8, 8, 3)
    assert old["error"].endswith("--stale --reason TEXT")
    assert (mixed["accepted"], mixed["held_back"]["rows"]) == (2, 1)
    name = old["file"].removeprefix("batch ")
    assert call.fails("resume", name) == 2, "whoever names it is told the option"
    assert call("resume", name, "--stale", "--reason", "asked the payees")["accepted"] == 3


def test_due_rows_are_sent_by_the_call_that_pays_by_their_gateway(
    call: Caller, put: Register, url: str, tmp_path: Path
) -> None:
    """Another company's call, with its own settings, sends its own; a batch that a run holds is being sent."""
    put("a.csv", 1, {1: 1})
    call(*LINE)
    at_noon(1)
    call.settings(BATCHPAY_BASE_URL="http://127.0.0.1:9", BATCHPAY_ENVIRONMENT="test")
    assert call("resume", "--due") == {"files": [], "exit_code": 0}
    call.settings(BATCHPAY_BASE_URL=url)
    own = LedgerSettings(url=str(tmp_path / "state" / "ledger.db"), key_file=str(tmp_path / "keys" / "ledger.key"))
    with closing(open_ledger(own)) as ledger, ledger.lock(ledger.find(None).digest):
        assert call("resume", "--due") == {"files": [], "exit_code": 0}
    assert call("resume", "--due")["accepted"] == 3


@pytest.mark.parametrize("more", [["3f2a91c0d7e1"], ["--stale", "--reason", "x"], ["--results", "r.csv"]])
def test_due_is_for_all_batches(call: Caller, more: list[str]) -> None:
    assert call.fails("resume", "--due", *more) == 2


def test_a_resumed_batch_is_told_to_people_or_to_a_program(call: Caller, put: Register) -> None:
    """`resume BATCH` printed the object of --json below its summary, also where nobody had asked for one."""
    put("a.csv", 1, {2: 1})
    name = call(*LINE)["batch"]
    at_noon(1)
    told = call.text("resume", name, "--out", "out")
    assert "accepted" in told
    assert "{" not in told
