"""What a run shows while it goes on: a bar on a terminal, plain log lines otherwise."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from batchpay.cli import output
from batchpay.cli.context import Context
from batchpay.payment import State, Totals
from batchpay.settings import Settings
from batchpay.text import counted, money, sum_word
from batchpay.workflows.requests import moves_real_money

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary
    from batchpay.sending.pacing import Throttle, ThrottleState
    from batchpay.sending.sender import Tally

_LOG_EVERY_S = 30.0
_RATE_OVER_S = 1.0
_DRAW_EVERY_S = 0.1
_BAR_WIDTH = 12


class QuietProgress:
    """Asks nothing and draws nothing; with `-v` or every half minute it says how far the run is."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pending = 0
        self._said_at = time.monotonic()

    def begin(self, batch: BatchSummary, to_send: Totals) -> None:
        """Remember how much there is to do."""
        self._pending = to_send.rows

    def update(self, tally: Tally, throttle: Throttle) -> None:
        """Say how far the run is, now and then."""
        if time.monotonic() - self._said_at >= (_RATE_OVER_S if self._context.verbose else _LOG_EVERY_S):
            self._said_at = time.monotonic()
            state = throttle.state()
            pace = _paused(state) or f"at most {_rate(state)} a second"
            output.say(self._context, f"{tally.finished:,} of {self._pending:,} rows, {_counts(tally)}, {pace}")

    def say(self, text: str) -> None:
        """One line on standard error."""
        output.say(self._context, text)


class TerminalProgress(QuietProgress):
    """A bar with rows, outcomes, rate now and allowed, and time left; asks before money moves."""

    def __init__(self, context: Context, *, ask: bool) -> None:
        super().__init__(context)
        self._ask = ask
        self._mark = (time.monotonic(), 0)
        self._rate_now = 0.0
        self._drawn_at = 0.0

    def begin(self, batch: BatchSummary, to_send: Totals) -> None:
        """Ask whether to send."""
        super().begin(batch, to_send)
        if self._ask:
            payments = counted(to_send.rows, "payment")
            amount = f"{sum_word('', batch.apart.get(State.PENDING, {}))} {money(to_send.cents)}".lstrip()
            _confirm(f"Send {payments}, {amount}, to {batch.origin}?")

    def update(self, tally: Tally, throttle: Throttle) -> None:
        """Draw the bar, some times a second, in the one line that a terminal has for it."""
        now, (since, before) = time.monotonic(), self._mark
        if now - since >= _RATE_OVER_S:
            self._rate_now = (tally.attempts - before) / (now - since)
            self._mark = (now, tally.attempts)
        if now - self._drawn_at < _DRAW_EVERY_S:
            return
        self._drawn_at = now
        state, left = throttle.state(), self._pending - tally.finished
        bar = "#" * (_BAR_WIDTH * tally.finished // max(1, self._pending))
        pace = f"{self._rate_now:,.0f}/s {_paused(state) or f'of {_rate(state)}'}"
        time_left = f", {left / self._rate_now:,.0f} s left" if self._rate_now else ""
        text = f"[{bar:<{_BAR_WIDTH}}] {tally.finished:,}/{self._pending:,} {_counts(tally)}, {pace}{time_left}"
        self.clear(text[: shutil.get_terminal_size().columns - 1])

    def say(self, text: str) -> None:
        """One line on standard error, in place of the bar."""
        self.clear()
        super().say(text)

    def clear(self, text: str = "") -> None:
        """Put a text in place of the bar."""
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


@contextlib.contextmanager
def progress_for(context: Context, settings: Settings, *, ask: bool) -> Iterator[QuietProgress]:
    """Give the progress that fits: a bar only on a terminal, a question only where a person can answer."""
    if context.quiet or context.json or not sys.stderr.isatty():
        yield QuietProgress(context)
        return
    progress = TerminalProgress(context, ask=ask and output.is_terminal() and moves_real_money(settings))
    try:
        yield progress
    finally:
        progress.clear()


def _confirm(question: str) -> None:
    """Ask on the terminal; anything but yes ends the command. Ctrl-C works while it asks."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        click.confirm(question, abort=True, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def _paused(state: ThrottleState) -> str:
    """The gateway's pause, where it is worth a word."""
    return f"paused {state.paused_s:.0f} s" if state.paused_s >= 1 else ""


def _rate(state: ThrottleState) -> str:
    """The rate allowed now: one in ten seconds is not 0."""
    return f"{state.rate:,.0f}" if state.rate >= 10 else f"{state.rate:.2g}"


def _counts(tally: Tally) -> str:
    parts = [(tally.outcomes[State.ACCEPTED], "accepted"), (tally.outcomes[State.DECLINED], "declined")]
    parts.append((tally.outcomes[State.IN_DOUBT], "in doubt"))
    return ", ".join(f"{count:,} {word}" for count, word in parts)
