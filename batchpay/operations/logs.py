"""Logs: one line per event, to standard error or a file, as text or JSON, with batch and row and no personal data.

What is logged is chosen where it happens: an event in fixed words, and fields from the list below. As a last resort,
long runs of digits are masked. We can't vouch for libraries' messages: only their origin is logged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from batchpay.errors import NotUsable
from batchpay.text import printable

LOGGER = "batchpay"
LAST_WORDS_MAX = 4096
"""So many characters of what a child said as it died are logged."""
FIELDS = (
    "batch", "environment", "file", "row", "rows", "row_ranges", "cents", "accepted", "declined", "in_doubt", "pending",
    "rejected", "attempts", "refusals", "state", "reason", "attempt", "http_status", "rate", "stopped", "exit_code",
    "path", "duration_s", "version",
    "method", "who", "address", "call", "pid", "host",
)  # fmt: skip
"""Fields that an event may have, in the order in which they are written; any other is left out."""
_NAMES = ("call", "host", "batch", "file", "path", "row_ranges")
"""Fields that name something in this program and may hold digits: a batch's name, a date in a file's name, rows."""
_DIGITS = re.compile(
    r"(?<=[\w\]]:)[0-9]{5}(?![\w.])"  # a port
    r"|(?<![0-9.])[0-9]{1,10}\.[0-9]{2}(?![0-9])"  # an amount
    r"|(?<![0-9.])[0-9]{5,7}(?= rows?\b)"
    r"|(?P<masked>[0-9]{5,})",
    re.ASCII,
)
"""Long runs of digits, and those among them that are no account: they are read from left to right."""
_PRIORITIES = {logging.ERROR: 3, logging.WARNING: 4}
_OURS = re.compile(rf"{LOGGER}(\.|$)")


class MaskFilter(logging.Filter):
    """Finalizes an event's text, masks runs of five or more digits in it, and withholds libraries' messages.

    It also adds to each line which call it is of, on which machine.
    """

    def __init__(self) -> None:
        super().__init__()
        self._origin = {"call": secrets.token_hex(4), "pid": os.getpid(), "host": os.uname().nodename}

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record so that no formatter can show anything it must not."""
        record.__dict__.update(self._origin)
        is_ours = _OURS.match(record.name)
        record.msg = _masked(record.getMessage()) if is_ours else f"message of {record.name} withheld"
        record.args = None
        for name in FIELDS:
            value = record.__dict__.get(name)
            if isinstance(value, str) and name not in _NAMES:
                record.__dict__[name] = _masked(value)
        return True


class TextFormatter(logging.Formatter):
    """`2026-11-21T03:00:00.000Z INFO started batch=… row=…`; a value with a blank is put in quotation marks."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the line."""
        shown = []
        for name, value in _fields(record).items():
            text = printable(str(value))
            is_plain = text and set(text).isdisjoint(' "=')
            shown.append(f"{name}={text if is_plain else json.dumps(text, ensure_ascii=False)}")
        return " ".join([_time(record), record.levelname, printable(record.getMessage()), *shown])


class JsonFormatter(logging.Formatter):
    """One JSON object: time, level, event, then the fields that the event has."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the object in ASCII, so that it can't control a terminal."""
        shown = {"time": _time(record), "level": record.levelname.lower(), "event": printable(record.getMessage())}
        fields = {name: printable(v) if isinstance(v, str) else v for name, v in _fields(record).items()}
        return json.dumps(shown | fields, ensure_ascii=True, default=str)


class LineHandler(logging.Handler):
    """Writes each line in one call, so that lines of several processes don't mix. An unwritable log is ignored.

    A full disk must not stop a payment halfway, and `logging`'s own error output would quote the event.
    """

    def __init__(self, descriptor: int | None, path: Path | None = None) -> None:
        """`path` is where the file was opened: if it is moved away (rotated), the next line goes to a new one there."""
        super().__init__()
        self._descriptor = descriptor
        self._path = path
        self._priorities = descriptor is None and _is_journal(sys.stderr)
        self.lost = 0
        """Lines that could not be written."""
        self.problem: str | None = None
        """Why the first of them could not."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line."""
        try:
            line = self.format(record) + "\n"
            if self._descriptor is None:
                sys.stderr.write(f"<{_PRIORITIES.get(record.levelno, 6)}>{line}" if self._priorities else line)
                sys.stderr.flush()
            else:
                self._follow()
                data = line.encode("utf-8", "backslashreplace")
                if (written := os.write(self._descriptor, data)) < len(data):
                    os.write(self._descriptor, data[written:])  # raises the error that prevents writing
        except Exception as error:  # whatever it is, logging can't help it
            self.lost += 1
            self.problem = self.problem or getattr(error, "strerror", None) or type(error).__name__

    def _follow(self) -> None:
        """Open the file anew if another one is at its path now, or none; the one that is open stays if that fails."""
        if self._path is None or self._descriptor is None:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(self._path.lstat(), os.fstat(self._descriptor)):
                return
        with contextlib.suppress(NotUsable):
            opened = _open_file(self._path)
            os.close(self._descriptor)
            self._descriptor = opened

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)
        super().close()


logging.getLogger(LOGGER).addHandler(logging.NullHandler())  # else warnings reach standard error without a log
logging.getLogger(LOGGER).addFilter(MaskFilter())  # for the handlers of whoever calls batchpay from Python


def open_log(*, path: str | Path | None, as_json: bool) -> LineHandler:
    """Send this process's events to a file, or to standard error if none is named; raises NotUsable.

    From libraries, only warnings are logged. Closed by `close_log`.
    """
    place = None if path is None else Path(path).absolute()
    handler = LineHandler(None if place is None else _open_file(place), place)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    handler.addFilter(MaskFilter())
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    root.addHandler(handler)
    logging.getLogger(LOGGER).setLevel(logging.INFO)
    return handler


def close_log(handler: LineHandler) -> None:
    """Stop logging to this handler."""
    logging.getLogger().removeHandler(handler)
    handler.close()


def _is_journal(stream: TextIO) -> bool:
    """Return whether a stream goes to systemd's journal, which reads `<4>` at the beginning of a line as a priority."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def log(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event in fixed words with fields from the list; costs next to nothing while no log is open."""
    logging.getLogger(LOGGER).log(level, event, extra={k: v for k, v in fields.items() if k in FIELDS})


def is_logging() -> bool:
    """Return whether a log is open: for what would cost something to put together."""
    return any(isinstance(handler, LineHandler) for handler in logging.getLogger().handlers)


def _open_file(path: Path) -> int:
    """Open for appending: a regular file owned by this user, never through a link, readable only by its owner."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
        status = os.fstat(descriptor)
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if is_own:
            os.fchmod(descriptor, 0o600)
    except OSError as error:
        raise NotUsable(f"log file {path} can't be opened: {error.strerror}") from None
    if not is_own:
        os.close(descriptor)
        raise NotUsable(f"log file {path} is not a regular file of this user")
    return descriptor


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: record.__dict__[name] for name in FIELDS if record.__dict__.get(name) is not None}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _masked(text: str) -> str:
    return _DIGITS.sub(lambda found: "****" if found["masked"] else found[0], text)
