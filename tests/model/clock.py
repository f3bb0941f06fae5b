"""The clock of a walk: days pass without waiting, in this process and in those it forks.

Every module of the program that reads the time does so through its own name for `datetime` or `time`. Those names are
replaced, module by module, by ones that add an offset: the program needs no seam for it.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import pkgutil
import sys
import time
import types
from typing import Any

offset_s = 0.0
_exchanged: set[str] = set()
"""Names of the modules that have the walk's clock."""
_real_datetime = datetime.datetime
_PROGRAM = "batchpay"


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
    """Return the time that the walk is at."""
    return _real_datetime.now(tz) + datetime.timedelta(seconds=offset_s)


def today() -> datetime.date:
    """Return the date that the walk is at, in the machine's own time zone."""
    return now(datetime.UTC).astimezone().date()


def _copy_of(module: types.ModuleType) -> types.ModuleType:
    copy = types.ModuleType(module.__name__)
    copy.__dict__.update(vars(module))
    return copy


_time = _copy_of(time)
vars(_time)["time"] = lambda: time.time() + offset_s
vars(_time)["time_ns"] = lambda: time.time_ns() + int(offset_s * 1e9)
_datetime = _copy_of(datetime)
vars(_datetime)["datetime"] = ShiftedDatetime


@functools.cache
def load_program() -> None:
    """Import every module of the program, so that none is loaded later with the real clock."""
    package = importlib.import_module(_PROGRAM)
    for found in pkgutil.walk_packages(package.__path__, f"{_PROGRAM}."):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)


def exchange() -> None:
    """Replace the clocks of all loaded modules of the program; harmless if repeated."""
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


def restore() -> None:
    """Give every module its real clock back."""
    _exchanged.clear()
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
