"""The errors that stop a command, and the exit code of each.

    BatchpayError                    1  internal error
    ├── CheckFailed                     a fault of the program ended the check of one file; the others go on
    ├── WrongUse                     2  wrong use of the command
    ├── FileRefused                  4  the file was refused whole; nothing was sent
    │   ├── NotAsApproved                what would be sent is not what a plan approved
    │   └── ForeignColumns               its columns are not ours: it takes a map
    ├── NotUsable                    5  settings, credentials or ledger not usable; nothing was sent
    │   ├── SettingsNotUsable
    │   ├── CredentialsNotUsable
    │   └── LedgerNotUsable
    │       ├── LedgerMissing            no ledger where one is expected
    │       ├── LedgerDamaged            not a ledger, bit rot, a broken hash chain
    │       ├── LedgerOlder              written by an older version of batchpay
    │       ├── LedgerNewer              written by a later version of batchpay
    │       ├── LedgerBehind             older than its witness: a restored backup
    │       ├── LedgerOnAnotherMachine   a copy, or a ledger that was moved
    │       └── LedgerBesideAnother      a new one would not know what the other paid
    ├── RunStopped                   6  stopped early, safe to run again
    │   ├── FileOvertaken                other files with its payments were registered during each of its checks
    │   ├── GatewayUnreachable
    │   └── CredentialsRefused
    ├── WaitingForPerson             8  a person must approve or decide first; nothing new was registered or sent
    │   └── LossNotSettled               what a restored ledger may not know: no file can be registered
    └── BatchHeld                    9  another run holds the batch
        └── HeldElsewhere                a run of another machine does

Bad rows and the gateway's answers are values, never exceptions. A message is one line for a person, in their words; it
never contains an account number or a key, and never quotes the text of a foreign exception that may contain them.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

EXIT_CODES = {
    0: "all that was asked for happened",
    1: "internal error",
    2: "wrong use of the command",
    3: "finished, and some rows are rejected, declined or held back",
    4: "the file was refused whole; nothing was sent",
    5: "settings, credentials or ledger not usable; nothing was sent, or all was and its results could not be written",
    6: "stopped early, safe to run again",
    7: "at least one row of this environment is in doubt: a person must look",
    8: "waiting for a person: approval, a ledger that was restored, an open question of a map, or a day's limit",
    9: "another run holds the batch",
}
"""What each exit code means; the manual page and a test of README read it here."""


class BatchpayError(Exception):
    """Whatever stops a command on purpose. `str(error)` is the one line shown to the person."""

    exit_code = 1
    lines: tuple[str, ...] = ()
    """The same on several lines, where one line would be long."""


class WrongUse(BatchpayError):
    """The command was called in a way that cannot be carried out."""

    exit_code = 2


class CheckFailed(BatchpayError):
    """A fault of the program, or of a library, ended the check of one file; nothing of it was registered or sent."""

    def __init__(self, file: str, fault: BaseException) -> None:
        """Name the file, and the kind and place of the fault: its text may contain a row."""
        super().__init__(f"{file}: could not be checked, nothing of it was sent now: internal error: {place_of(fault)}")


class FileRefused(BatchpayError):
    """A payment file (or a map, a control file, a plan) was refused whole; nothing from it was sent."""

    exit_code = 4


class NotAsApproved(FileRefused):
    """What would be sent is not what a plan approved; `lines` names each difference on its own line."""

    def __init__(self, name: str, different: Iterable[str]) -> None:
        """Name the file, and what differs."""
        found, said = list(different), f"{name} is not what the plan approved:"
        super().__init__(f"{said} {', '.join(found)}")
        self.lines = (said, *(f"  {one}" for one in found))


class ForeignColumns(FileRefused):
    """A payment file whose columns are not ours: a column map says which is which."""


class NotUsable(BatchpayError):
    """Something that a run needs can't be used; nothing was sent."""

    exit_code = 5


class SettingsNotUsable(NotUsable):
    """A setting is missing, unknown or out of its range."""


class CredentialsNotUsable(NotUsable):
    """The gateway's id or key is not given, or its file is readable by other users."""


class LedgerNotUsable(NotUsable):
    """The ledger is locked, not writable, on a disk it can't trust, or otherwise not reliable."""


class LedgerMissing(LedgerNotUsable):
    """There is no ledger where one is expected."""


class LedgerDamaged(LedgerNotUsable):
    """The ledger's content contradicts itself or its key."""


class LedgerOlder(LedgerNotUsable):
    """The ledger was written by an older version of batchpay, and was opened for reading only."""


class LedgerNewer(LedgerNotUsable):
    """The ledger was written by a later version of batchpay."""


class LedgerBehind(LedgerNotUsable):
    """The ledger may not know of later payments: it is older than its witness, has none, or was loaded from a copy."""


class LedgerElsewhere(LedgerNotUsable):
    """The ledger is at another place than before, with all that this machine knows of: it was moved, or copied."""


class LedgerOnAnotherMachine(LedgerNotUsable):
    """What this machine knows of a ledger in a database was copied here from another machine."""


class ClockBehind(LedgerNotUsable):
    """The machine's clock is far before the ledger's last event."""


class LedgerBesideAnother(LedgerNotUsable):
    """A new ledger was to be created where another one has payments: it would not know of them."""


class RunStopped(BatchpayError):
    """A run ended before its work was done; running it again is safe."""

    exit_code = 6


class NoThread(RunStopped):
    """The system starts no more threads: a container's limit on processes, a limit on memory."""


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; raises NoThread."""
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        raise NoThread("the system starts no more threads; what was not sent is pending, safe to run again") from None


class ClockDiffers(RunStopped):
    """The clock of this machine differs from that of the server which has the ledger; nothing more is sent."""


class FileOvertaken(RunStopped):
    """Other files with payments of this one were registered during each of its checks; nothing of it was sent."""


class GatewayUnreachable(RunStopped):
    """No connection to the gateway could be made; nothing was sent."""


class CredentialsRefused(RunStopped):
    """The gateway answered that it does not know the id or the key."""


class WaitingForPerson(BatchpayError):
    """Nothing new goes out before a person has approved it, or has said what a restored ledger lost."""

    exit_code = 8


class LossNotSettled(WaitingForPerson):
    """A restored ledger may not know of payments, and no person has settled what it lost."""


class BatchHeld(BatchpayError):
    """Another run holds the batch."""

    exit_code = 9


class HeldElsewhere(BatchHeld):
    """Another machine's run holds the batch, and its heartbeat moves."""


_NOTHING_WAS_SENT = re.compile(r"[;,] nothing was sent( now)?")


def once_sent(error: BatchpayError) -> str:
    """Return the message of an error raised after rows were sent, which the error does not know about."""
    return _NOTHING_WAS_SENT.sub("", str(error))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the closest known one, or nothing."""
    import difflib  # few calls end with a message about an unknown word

    close = difflib.get_close_matches(word, [name for name in known if name], n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def add_on_missing(extra: str, package: str) -> str:
    """Return that an add-on's package is missing, and what installs it: pip takes the batchpay that is there."""
    return f"{package} is not installed; it comes with the add-on: {sys.executable} -m pip install 'batchpay[{extra}]'"


def place_of(error: BaseException) -> str:
    """Return an error's class and our own line where it was raised, without its text; it may tell what is missing."""
    where = ""
    place = error.__traceback__
    while place is not None:
        file = Path(place.tb_frame.f_code.co_filename)
        if "batchpay" in file.parts or "schemas" in file.parts:
            where = f" at {file.name}:{place.tb_lineno}"
        place = place.tb_next
    missing = f" ({error})" if isinstance(error, ImportError) else ""
    return f"{type(error).__name__}{where}{missing}"
