"""The metrics file, read back by a small parser of the exposition format."""

from __future__ import annotations

import re
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from batchpay.errors import NotUsable
from batchpay.operations.health import read_ledger_state
from batchpay.operations.inbox import files_by_state
from batchpay.operations.metrics import write_metrics
from batchpay.payment import Environment, State, Totals
from batchpay.summary import Summary
from tests.support.ledger_factory import Planned, add_batch, ledger_in

BEGAN = datetime(2026, 11, 23, 2, 30, tzinfo=UTC)
NOW_S = time.time()
ENDED = datetime(2026, 11, 23, 2, 31, 1, 500_000, tzinfo=UTC)
SAMPLE = re.compile(r'(batchpay_[a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?[0-9]+(?:\.[0-9]+)?)')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\\n]|\\["\\n])*)"')


def summary(file: str = "pay.csv", batch: str | None = "3f2a91c0d7e1") -> Summary:
    return Summary(
        file,
        Totals(5, 5_000),
        {State.ACCEPTED: Totals(3, 3_500), State.IN_DOUBT: Totals(1, 500), State.REJECTED: Totals(1, 1_000)},
        batch=batch,
        warnings=2,
        stopped="deadline",
        by_direction={"DEBIT": Totals(4, 4_000), "CREDIT": Totals()},
    )


def parsed(path: Path) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read a metrics file; every line must be well-formed, typed before its samples, and no series may come twice."""
    text = path.read_text("utf-8")
    assert text.endswith("\n")
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    typed: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert kind == "gauge"
            assert name not in typed
            typed.append(name)
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] == typed[-1]
        key = (match[1], frozenset(LABEL.findall(match[2] or "")))
        assert key not in found
        found[key] = float(match[3])
    return found


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset({"file": "pay.csv", "batch": "3f2a91c0d7e1", **given}.items())


def test_a_run_in_figures(tmp_path: Path) -> None:
    """Rows and cents by state, warnings, exit codes and times stand in the file."""
    path = tmp_path / "batchpay.prom"
    write_metrics(path, [summary()], 7, BEGAN, ENDED, completed=True)
    found = parsed(path)
    assert found["batchpay_rows", labels(state="accepted")] == 3
    assert found["batchpay_amount_cents", labels(state="in_doubt")] == 500
    assert found["batchpay_rows", labels(state="pending")] == 0
    assert found["batchpay_valid_amount_cents", labels(direction="DEBIT")] == 4_000
    assert found["batchpay_warnings", labels()] == 2
    assert found["batchpay_stopped", labels()] == 1
    assert found["batchpay_file_exit_code", labels()] == 7
    assert found["batchpay_exit_code", frozenset()] == 7
    assert found["batchpay_end_timestamp_seconds", frozenset()] == ENDED.timestamp()
    assert sum(value for (name, _), value in found.items() if name == "batchpay_rows") == 5


def test_a_file_that_was_refused_has_its_exit_code(tmp_path: Path) -> None:
    """Only files with a summary were named: one that could not be checked, night after night, was not."""
    path = tmp_path / "batchpay.prom"
    write_metrics(path, [summary()], 1, BEGAN, ENDED, completed=False, ended={"bad.csv": 1, "no.csv": 4})
    found = parsed(path)
    for name, batch, code in (("pay.csv", "3f2a91c0d7e1", 7), ("bad.csv", "", 1), ("no.csv", "", 4)):
        assert found["batchpay_file_exit_code", labels(file=name, batch=batch)] == code


def test_the_limit_that_was_found_is_a_figure(tmp_path: Path) -> None:
    """Where the gateway's limit was met the rate stands there; where it was not, no figure says that there is none."""
    path = tmp_path / "batchpay.prom"
    one = summary()
    write_metrics(path, [one], 7, BEGAN, ENDED, completed=True)
    assert ("batchpay_gateway_rate_found", labels()) not in parsed(path)
    one.rate_found = 97.5
    write_metrics(path, [one], 7, BEGAN, ENDED, completed=True)
    assert parsed(path)["batchpay_gateway_rate_found", labels()] == 97.5


def test_a_collector_of_another_user_can_read_it(tmp_path: Path) -> None:
    """It is the one file that all may read, and it comes whole: nothing is left beside it."""
    write_metrics(tmp_path / "batchpay.prom", [], 0, BEGAN, ENDED, completed=True)
    assert stat.S_IMODE((tmp_path / "batchpay.prom").stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["batchpay.prom"]


def test_the_last_completed_run_is_remembered(tmp_path: Path) -> None:
    """A run that failed keeps the time of the one that completed, so that an alert can ask for its age."""
    path = tmp_path / "batchpay.prom"
    key = ("batchpay_last_completed_timestamp_seconds", frozenset[tuple[str, str]]())
    write_metrics(path, [], 5, BEGAN, ENDED, completed=False)
    assert parsed(path)[key] == 0
    write_metrics(path, [summary()], 3, BEGAN, BEGAN, completed=True)
    for completed, at in ((False, BEGAN), (True, ENDED)):
        write_metrics(path, [], 7, BEGAN, ENDED, completed=completed)
        assert parsed(path)[key] == at.timestamp()
    # However many files the call had that completed: beyond a mebibyte of them it was forgotten.
    write_metrics(path, [summary(f"{at}.csv") for at in range(800)], 0, BEGAN, BEGAN, completed=True)
    write_metrics(path, [], 7, BEGAN, ENDED, completed=False)
    assert parsed(path)[key] == BEGAN.timestamp()


def test_gauges_show_the_whole_ledger(tmp_path: Path) -> None:
    """Rows and cents by state over all batches, the oldest doubt, what waits; a call that read no ledger says so."""
    with ledger_in(tmp_path) as ledger:
        add_batch(ledger, [Planned(1), Planned(2, State.IN_DOUBT, 700)])
        add_batch(ledger, [Planned(1), Planned(2, State.PENDING, 300)], file="b.csv", stopped="signal")
        state = read_ledger_state(ledger, Environment.TEST)
        other = read_ledger_state(ledger, Environment.LIVE)
    path = tmp_path / "batchpay.prom"
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for name in ("pay.csv", "pay.csv.control.toml", "new.csv", "cut.part", "pay.rejects.csv", "list.txt"):
        (inbox / name).write_text("x")
    files = files_by_state(inbox, now_s=NOW_S)
    write_metrics(path, [], 7, BEGAN, ENDED, state, completed=True, inbox=files)
    found = parsed(path)

    def gauge(name: str, **given: str) -> float:
        return found[f"batchpay_{name}", frozenset(given.items())]

    assert [gauge("inbox_files", state=one) for one in ("waiting", "incomplete", "ignored")] == [1, 2, 2]
    assert gauge("ledger_readable") == 1
    assert gauge("ledger_rows", environment="test", state="accepted") == 2
    assert gauge("ledger_amount_cents", environment="test", state="in_doubt") == 700
    assert gauge("waiting_batches", environment="test") == 1
    assert gauge("oldest_doubt_timestamp_seconds", environment="test") > 0
    assert gauge("last_registered_timestamp_seconds", environment="test") == pytest.approx(NOW_S, abs=600)
    assert other.batches == 0 and other.oldest_doubt is None
    write_metrics(path, [], 5, BEGAN, ENDED, completed=False)
    found = parsed(path)
    assert gauge("ledger_readable") == 0
    assert not any(name == "batchpay_ledger_rows" for name, _ in found)


def test_what_a_killed_run_was_sending_is_in_doubt(tmp_path: Path) -> None:
    """The alert on rows in doubt was silent until somebody ran the batch again."""
    with ledger_in(tmp_path) as ledger:
        name = add_batch(ledger, [Planned(1), Planned(2, State.SENDING, 700)])
        with ledger.lock(ledger.find(name).digest):
            running = read_ledger_state(ledger, Environment.TEST)
        killed = read_ledger_state(ledger, Environment.TEST)
    states = State.SENDING, State.IN_DOUBT
    assert [running.by_state[state] for state in states] == [Totals(1, 700), Totals()]
    assert [killed.by_state[state] for state in states] == [Totals(), Totals(1, 700)]
    assert running.oldest_doubt is None and killed.oldest_doubt is not None


@pytest.mark.parametrize("name", ['a"b\\c.csv', "a\nb.csv", "caf\xe9.csv", "\udcff.csv", 'x",state="y.csv', "\x1b[2J"])
def test_no_name_can_break_the_file(tmp_path: Path, name: str) -> None:
    """Quotation marks, line breaks and broken characters in a file's name leave the file well-formed."""
    path = tmp_path / "batchpay.prom"
    write_metrics(path, [summary(name), summary(name), summary("other.csv", None)], 0, BEGAN, ENDED, completed=True)
    files = {value for _, given in parsed(path) for label, value in given if label == "file"}
    assert len(files) == 2


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    """A metrics file that can't be written is a stated error."""
    with pytest.raises(NotUsable, match="can't be written"):
        write_metrics(tmp_path / "none" / "batchpay.prom", [], 0, BEGAN, ENDED, completed=True)
