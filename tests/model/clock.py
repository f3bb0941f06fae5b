"""The clock of a walk: days pass without waiting, in this process and in those it forks.

Every module of the program that reads the time does so through its own name for `datetime` or `time`. Those names are
replaced, module by module, by ones that add an offset: the program needs no seam for it. What nobody can set, and a
database server's clock, pass as the days do; the machine's own may be wrong beside them.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import pkgutil
import sys
import time
import types
from collections.abc import Callable
from typing import Any

offset_s = 0.0
synchronized = False
"""Whether a time server is said to keep it."""
wrong_s = 0.0
"""By how much the machine's clock is ahead of the time that the walk is at."""
_exchanged: set[str] = set()
"""Names of the modules that have the walk's clock."""
_real_datetime = datetime.datetime
_PROGRAM, _MACHINE = "batchpay", "batchpay.ledger.machine"
_real: dict[str, Any] = {}
"""What was exchanged besides `datetime` and `time`."""


class _Meta(type):
    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return _real_datetime(*arguments, **named)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _real_datetime)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _real_datetime)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_real_datetime, name)


class ShiftedDatetime(metaclass=_Meta):
    """`datetime.datetime`, except that now is later or earlier."""

    @staticmethod
    def now(tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return now(tz)


def now(tz: datetime.tzinfo | None = None) -> datetime.datetime:
    """Return the time that the machine's clock shows."""
    return _real_datetime.now(tz) + datetime.timedelta(seconds=offset_s + wrong_s)


def today() -> datetime.date:
    """Return the date that the walk is at, in the machine's own time zone."""
    return now(datetime.UTC).astimezone().date()


def _copy_of(module: types.ModuleType) -> types.ModuleType:
    copy = types.ModuleType(module.__name__)
    copy.__dict__.update(vars(module))
    return copy


_time = _copy_of(time)
vars(_time)["time"] = lambda: time.time() + offset_s + wrong_s
vars(_time)["time_ns"] = lambda: time.time_ns() + int((offset_s + wrong_s) * 1e9)
vars(_time)["clock_gettime_ns"] = lambda which: time.clock_gettime_ns(which) + int(offset_s * 1e9)
_datetime = _copy_of(datetime)
vars(_datetime)["datetime"] = ShiftedDatetime


@functools.cache
def load_program() -> None:
    """Import every module of the program, so that none is loaded later with the real clock."""
    package = importlib.import_module(_PROGRAM)
    for found in pkgutil.walk_packages(package.__path__, f"{_PROGRAM}."):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)


def _is_synchronized() -> bool:
    return synchronized


def _exchange_servers(machine: types.ModuleType) -> None:
    """Let the days pass for a database server as well."""
    shared, ask = machine.SharedClock, machine.SharedClock.ask
    _real[machine.__name__] = ask

    def later(server_ms: Callable[[], int], *, times: int = 1) -> object:
        return ask(lambda: server_ms() + int(offset_s * 1000), times=times)

    shared.ask = later


def exchange() -> None:
    """Replace the clocks of all loaded modules of the program; harmless if repeated."""
    machine = sys.modules.get(_MACHINE)
    if machine is not None and _MACHINE not in _real:
        _exchange_servers(machine)
        _real["is_synchronized"] = machine.is_synchronized
    for name, module in list(sys.modules.items()):
        if name in _exchanged or name.split(".")[0] != _PROGRAM:
            continue
        _exchanged.add(name)
        for key, value in list(vars(module).items()):
            if value is _real_datetime:
                setattr(module, key, ShiftedDatetime)
            elif value is datetime:
                setattr(module, key, _datetime)
            elif value is time:
                setattr(module, key, _time)
            elif value is _real.get("is_synchronized"):
                setattr(module, key, _is_synchronized)


def restore() -> None:
    """Give every module its real clock back; do nothing if none has another."""
    global offset_s, wrong_s
    offset_s = wrong_s = 0.0
    if not _exchanged:
        return
    _exchanged.clear()
    if _MACHINE in _real:
        sys.modules[_MACHINE].SharedClock.ask = _real.pop(_MACHINE)
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != _PROGRAM:
            continue
        for key, value in list(vars(module).items()):
            if value is ShiftedDatetime:
                setattr(module, key, _real_datetime)
            elif value is _datetime:
                setattr(module, key, datetime)
            elif value is _time:
                setattr(module, key, time)
            elif value is _is_synchronized:
                setattr(module, key, _real["is_synchronized"])
