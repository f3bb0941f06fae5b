"""Files about a batch, created on request by a child: the command line's use cases, written into the server's memory.

The server (`make`) loads nothing of what creates them, and none of them is on a disk unencrypted. Settings and
arguments reach the child (`main`) over standard input, so that no process list shows a name or a reason; the file goes
to standard output. An error is one sentence on standard error, in the command line's words.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO

from batchpay import errors
from batchpay.errors import EXIT_CODES, BatchpayError, NotUsable, RunStopped, WrongUse
from batchpay.gateway.origin import environment_of
from batchpay.ledger.open import open_ledger
from batchpay.operations.logs import LAST_WORDS_MAX, log
from batchpay.payment import ON_THE_WEB, Actor
from batchpay.settings import Settings, load_settings
from batchpay.text import instant, place_of, place_word
from batchpay.writing.atomic import Stream
from batchpay.writing.process_memory import in_plain_words, keep_memory_private

if TYPE_CHECKING:  # each kind of file loads only what creates it
    from batchpay.reconciliation.verdicts import FoundDoubt
    from batchpay.web.site import Site
    from batchpay.workflows.resolve import Signature

DEADLINE_S, WAIT_S = 600, 5
"""How long a child may take, and how long to wait for another one's end: a thread that waits answers nobody else."""
_AT_ONCE = threading.BoundedSemaphore(2)
_LOOKER = Actor("batchpay", "page", ON_THE_WEB)


def make(here: Site, kind: str, *arguments: Any, given: int | None = None) -> int:
    """Have a file created; return the descriptor of a file in memory, which the caller closes.

    `given` is a descriptor of what the child reads, an uploaded export. Raises NotUsable with the child's sentence if
    it fails, and RunStopped if it takes too long, or others are in front of it.
    """
    if not _AT_ONCE.acquire(timeout=WAIT_S):
        raise RunStopped("other files are being created at the moment; try again in a minute")
    into = os.memfd_create(kind, os.MFD_CLOEXEC)
    try:
        command = [sys.executable, "-P", "-m", "batchpay.web.papers", kind, "-" if given is None else str(given)]
        asked = {"settings": dataclasses.asdict(here.settings), "arguments": arguments}
        child = subprocess.run(  # noqa: S603 - this program itself
            command,
            input=json.dumps(asked).encode(),
            stdout=into,
            stderr=subprocess.PIPE,
            pass_fds=() if given is None else (given,),
            timeout=DEADLINE_S,
            check=False,
        )
        if child.returncode:
            said = child.stderr.decode("utf-8", "replace").strip()
            if child.returncode not in EXIT_CODES or child.returncode == BatchpayError.exit_code:
                log("paper failed", state=kind, exit_code=child.returncode, reason=said[-LAST_WORDS_MAX:])
                said = "this file could not be created; tell your batchpay administrator: the page's log says why"
            raise NotUsable(said)
    except subprocess.TimeoutExpired:
        os.close(into)
        log("paper failed", state=kind, reason=f"not done after {DEADLINE_S} s")
        raise RunStopped(f"this took longer than {DEADLINE_S // 60} minutes and was ended") from None
    except BaseException:
        os.close(into)
        raise
    finally:
        _AT_ONCE.release()
    return into


def read_json(here: Site, kind: str, *arguments: Any, given: int | None = None) -> Any:
    """Have a child do something, and return its JSON answer."""
    with os.fdopen(make(here, kind, *arguments, given=given), "rb") as answer:
        answer.seek(0)
        return json.load(answer)


def main() -> int:
    """Create one file; return the exit code."""
    os.umask(0o077)
    keep_memory_private()
    kind, given = sys.argv[1:]
    asked = json.load(sys.stdin)
    settings = load_settings(asked["settings"], {})
    try:
        with in_plain_words(), os.fdopen(os.dup(1), "w+b") as into, ExitStack() as opened:
            files = [opened.enter_context(os.fdopen(os.dup(int(given)), "rb"))] if given != "-" else []
            for file in files:
                file.seek(0)
            if kind in FILES:
                FILES[kind](settings, into, *files, *asked["arguments"])
            else:
                into.write(json.dumps(ANSWERS[kind](settings, *files, *asked["arguments"])).encode())
    except BatchpayError as error:
        sys.stderr.write(str(error))
        return error.exit_code
    except Exception as error:
        sys.stderr.write(errors.place_of(error))  # its text may hold a row
        return BatchpayError.exit_code
    return 0


def _results(settings: Settings, into: Any, batch: str, name: str) -> None:
    from batchpay.workflows.status import results_again

    results_again(batch, lambda _: Stream(name, into), settings)


def _report(settings: Settings, into: Any, batch: str, name: str) -> None:
    from batchpay.workflows.status import batch_page

    batch_page(batch, lambda _: Stream(name, into), settings)


def _doubts(settings: Settings, into: Any, batch: str, name: str) -> None:
    from batchpay.workflows.resolve import list_in_doubt

    list_in_doubt(batch, settings, _LOOKER, sheet=Stream(name, into))


def _reconcile(settings: Settings, into: Any, against: BinaryIO, batch: str, name: str, export: str) -> None:
    """Match a batch with an export: every row and line of both."""
    from batchpay.workflows.reconcile import ReconcileRequest, reconcile

    reconcile(batch, ReconcileRequest(Stream(export, against), output=Stream(name, into)), settings, _LOOKER)


def _to_correct(settings: Settings, into: BinaryIO, home: str, file_id: str, name: str = "none.csv") -> dict[str, Any]:
    """Write the payments of an uploaded file to correct that were declined or came back; tell of those left out."""
    from batchpay.web.spool import WebStore, place
    from batchpay.web.task import FileInMemory, Task, request_of
    from batchpay.workflows.to_correct import to_correct

    with closing(WebStore(Path(home))) as store:
        file, job = store.file(file_id), store.one("SELECT * FROM job WHERE file = ?", file_id)
        assert file is not None and job is not None, "it was sent"
        with Task(store, settings, job, file).upload() as path:
            request, target = request_of(file, path, settings), place(store.home, file_id) / name
            return to_correct(request, file["batch"], settings, target, partial(FileInMemory, into))


def _template(settings: Settings, into: Any) -> None:
    from batchpay.workflows.template import make_template

    with TemporaryDirectory() as folder:
        path = Path(folder) / "template.xlsx"
        make_template(path, replace=False)
        into.write(path.read_bytes())


def _compare(
    settings: Settings, against: BinaryIO, batch: str, export: str, signed: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what `batchpay reconcile --json` says; `signed`, a person on the page, settles what it proves."""
    from batchpay.workflows.reconcile import ReconcileRequest, reconcile
    from batchpay.workflows.resolve import Signature

    who, decider = _LOOKER, None
    if signed is not None:
        decider = _SawExport(Signature(signed["name"], signed["reason"]), signed["shown"])
        who = Actor(**signed["by"])
    with Path(os.devnull).open("w+b") as nowhere:
        request = ReconcileRequest(Stream(export, against), output=Stream("none.csv", nowhere))
        return reconcile(batch, request, settings, who, decider).as_json()


class SignedOnPage:
    """See workflows.resolve.Decider: the person has seen it on the page, proved their identity, and signed."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature

    def sign(self) -> Signature:
        """Return who decides, and how they know."""
        return self.signature

    def confirm(self, sent_again: int) -> None:
        """They pressed the button; a second person did, if rows are sent again."""


class _SawExport(SignedOnPage):
    """The person saw what an export proves of each row in doubt."""

    def __init__(self, signature: Signature, shown: Collection[dict[str, Any]]) -> None:
        super().__init__(signature)
        self._shown = shown

    def show(self, found: FoundDoubt) -> None:
        """Raise WrongUse if it was another row, attempt or line."""
        if found.as_json() not in self._shown:
            raise WrongUse(f"{found.place} is not as the page showed it; compare the export again")


def _decisions(settings: Settings, file: BinaryIO, batch: str, sheet: str) -> dict[str, Any]:
    """Read what a filled-in sheet decides; nothing is recorded."""
    from batchpay.reconciliation.resolution import DECISIONS, read_decisions, rows_in_doubt

    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        doubts = {doubt.row: doubt for doubt in rows_in_doubt(ledger, batch, settings.gateway.timeout)}
        filled = read_decisions(Stream(sheet, file), batch, doubts)
    words = {state: word for word, state in DECISIONS.items()}
    found = [(one.row, words[one.state], one.gateway_reference, doubts[one.row].attempt) for one in filled.decisions]
    names = ("row", "decision", "reference", "attempt")
    return {"decisions": [dict(zip(names, one, strict=True)) for one in found], "notes": filled.notes}


def _find(settings: Settings, payment_id: str) -> dict[str, Any] | None:
    """Look a payment up by its paymentId."""
    from batchpay.workflows.earlier_payments import find_payment
    from batchpay.workflows.returns import fact_json, list_returns

    found = find_payment(payment_id, settings)
    if found is None:
        return None
    facts = [fact_json(fact) for fact in list_returns(settings, batch=found.batch) if fact.row == found.row]
    told = {"batch": found.batch, "place": found.place, "at": instant(found.at), "declined": found.declined}
    return told | {"facts": facts}


def _returns(settings: Settings, batch: str | None, most: int, among: list[str] | None) -> dict[str, Any]:
    """List what came back, `among` some batches: how much, the latest of it, what a night took in that nobody saw."""
    from batchpay.workflows.returns import fact_json, list_returns

    found = [one for one in list_returns(settings, batch=batch) if among is None or one.batch in among]
    unseen = [one for one in found if one.is_unattended]
    return {"count": len(found), "facts": [*map(fact_json, found[:most])], "unseen": [*map(fact_json, unseen[:most])]}


def _take_returns(
    settings: Settings, file: BinaryIO, name: str, by: dict[str, str], match: tuple[str, int, str] | None = None
) -> dict[str, Any]:
    """Take in a bank's file of returns; with `match`, a batch, row and reason, say that a line of it is about that row.

    Each payment that a line is perhaps about is named as a person finds it in its payment file.
    """
    from batchpay.workflows.returns import confirm_match, take_returns

    who = Actor(**by)
    if match is not None:
        confirm_match(Stream(name, file), match[:2], match[2], settings, who)
        file.seek(0)
    taken = take_returns(Stream(name, file), settings, who, dry_run=match is not None)
    told, perhaps = taken.as_json(), {one.line.line: one.perhaps for one in taken.matches}
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        for line in told["list"]:
            for one, payment in zip(line["perhaps"], perhaps[line["line"]], strict=False):
                one["file"] = ledger.find(payment.batch).file
                one["place"] = place_of(place_word(one["file"]), payment.row, payment.line)
    return told | {"place": match and _place_of(settings, *match[:2])}


def _say_of_return(
    settings: Settings, batch: str, row: int, reason: str, by: dict[str, str], withdraw: bool, code: str | None
) -> str:
    """Record that what came back is right, or that it was wrong or undone; return where the payment is in its file."""
    from batchpay.workflows.returns import say_of_return

    say_of_return((batch, row), reason, settings, Actor(**by), withdraw=withdraw, code=code)
    return _place_of(settings, batch, row)


def _place_of(settings: Settings, batch: str, row: int) -> str:
    """Return where a person finds a payment that came back in its payment file."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        facts = ledger.facts(environment_of(settings.gateway), batch=batch)
        return next(fact.place for fact in facts if fact.row == row)


def _check_ledger(settings: Settings) -> list[str]:
    """Check the whole ledger; one line for each problem."""
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        return ledger.check()


def _rules(settings: Settings) -> list[dict[str, str]]:
    """Return every rule: what it applies to, how severe it is, what it says of a row."""
    from batchpay.workflows.rules import rule_table

    return [
        {"where": line.where, "severity": line.fact.severity, "message": line.fact.message} for line in rule_table()
    ]


FILES: dict[str, Callable[..., object]] = {
    "results": _results,
    "report": _report,
    "doubts": _doubts,
    "reconcile": _reconcile,
    "template": _template,
    "to correct": _to_correct,
}
ANSWERS: dict[str, Callable[..., Any]] = {
    "compare": _compare,
    "decisions": _decisions,
    "find": _find,
    "returns": _returns,
    "take returns": _take_returns,
    "say of return": _say_of_return,
    "check": _check_ledger,
    "rules": _rules,
    "unpaid": lambda settings, *asked: _to_correct(settings, BytesIO(), *asked),
}
"""What is written as JSON."""


if __name__ == "__main__":
    sys.exit(main())
