"""The command `batchpay` under a clock of its own, which passes midnight while requests are held up (held_up.py).

`python -m tests.support.over_midnight DAYS LEAVE HOLD ARGUMENTS…`: it is noon, DAYS days from today; once HOLD requests
are held it is noon of the day after, which is reported on standard error.
"""

from __future__ import annotations

import datetime
import sys

from tests.model import clock
from tests.support.held_up import Gate, main_held_up

_DAY_S = 86_400


def _pass_midnight() -> None:
    clock.offset_s += _DAY_S


if __name__ == "__main__":
    _, days, leave, hold, *arguments = sys.argv
    sys.argv[1:] = arguments
    now = datetime.datetime.now().astimezone()
    clock.offset_s = (now.replace(hour=12, minute=0, second=0) - now).total_seconds() + int(days) * _DAY_S
    clock.load_program()
    clock.exchange()
    main_held_up(Gate(int(leave), int(hold), _pass_midnight))
