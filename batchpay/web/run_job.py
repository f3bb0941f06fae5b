"""What a child does to send: `submit` from the approved plan, or `resume` of its batch; the command line's functions.

The whole file is checked again, and what differs from the plan is not sent. A person's stop comes through web.db, so
that it also reaches a child that an earlier server started. A signal leaves the job wanted: it is started again.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from batchpay.approval.plan import Plan, PlanText
from batchpay.errors import BatchpayError, FileRefused, NotAsApproved, NotUsable, RunStopped, WaitingForPerson, WrongUse
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Totals
from batchpay.sending.limits import StopRequest
from batchpay.settings import Settings
from batchpay.text import counted
from batchpay.web.acts import makers, page_settings, signed
from batchpay.web.task import ProgressWriter, Task, options_of, request_of
from batchpay.web.words import changed_since, unknown_batch
from batchpay.workflows.approve import add_approval, view_plan
from batchpay.workflows.check import dry_run
from batchpay.workflows.requests import Decisions, SendOptions, run_request
from batchpay.workflows.run import resume as workflow_resume
from batchpay.workflows.submit import SubmitRequest
from batchpay.workflows.submit import submit as workflow_submit

if TYPE_CHECKING:
    from batchpay.sending.pacing import Throttle
    from batchpay.sending.sender import Tally

_CHECK_EVERY_S = 0.3
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def send(task: Task) -> int:
    """Send what was approved, or resume it; the file's state says how it ended."""
    with task.store.write() as db:
        states = ("approved", "sending")  # or it was taken back meanwhile
        if not any(task.store.move(db, task.file["id"], state, "sending", told=None) for state in states):
            return 2
    settings, writer = page_settings(task.settings), task.progress_writer()
    writer.write(now=True, step="reading")
    stop: StopRequest | None = None
    try:
        run, credentials = run_request(settings, SendOptions())
        stop = run.stop
        with _watched(task, run.stop):
            plan, decisions = PlanText(task.file["name"], task.file["plan"]), Decisions()
            if task.job["kind"] == "release":
                plan, decisions = _release(task, settings)
            batch = _batch_of(plan, task, settings)
            progress = _Progress(task, writer)
            if batch is not None:
                summary = workflow_resume(batch, lambda _: None, run, settings, credentials, task.actor(), progress)
            else:
                with task.upload() as path:

                    def watch(rows: int) -> None:
                        writer.write(step="reading", rows=rows)
                        if run.stop:
                            raise RunStopped(run.stop.reason or "")

                    request = dataclasses.replace(request_of(task.file, path, settings), watch=watch)
                    submission = SubmitRequest(run, decisions, plan)
                    summary, _ = workflow_submit(request, submission, settings, credentials, task.actor(), progress)
    except (FileRefused, WaitingForPerson) as error:
        return _end(task, "stopped", str(error), error.exit_code) if _is_begun(task) else _send_back(task, error)
    except BatchpayError as error:
        _leave_wanted(stop)
        return _end(task, "stopped", str(error), error.exit_code)
    _leave_wanted(stop)
    state = "stopped" if summary.waiting else "done"  # what is held back waits for another day
    return _end(task, state, summary.stopped, summary.exit_code, batch=summary.batch)


def _batch_of(plan: PlanText, task: Task, settings: Settings) -> str | None:
    """Return the batch that the plan was used for; None if nothing of it was registered yet.

    Raises WaitingForPerson if a maker of the file is among those who approved, and NotUsable if the ledger does not
    know the batch that the file was sent as: the plan would be used a second time.
    """
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        found = Plan.parse(plan, ledger)
        if makers(task.file) & {approval.who.name for approval in found.approvals}:
            raise WaitingForPerson(
                "the person who prepared this is among those who approved it; another person must approve it"
            )
        is_used, is_release = ledger.batch_of_plan(found.id) is not None, task.job["kind"] == "release"
        if task.file["asked_by"] in ledger.people_off() and not (is_used or is_release):
            raise WaitingForPerson("the person who requested this is switched off; another person must request it")
        batch, went_as = ledger.batch_of_plan(found.id), task.file["batch"]
        if batch is None and went_as is not None:
            try:
                ledger.find(went_as)
            except WrongUse:
                raise NotUsable(unknown_batch(went_as)) from None
        return batch


def _release(task: Task, settings: Settings) -> tuple[PlanText, Decisions]:
    """Return the plan of the held rows that a person names, signed by them on the page, and what it decides.

    It is kept before it is used, so that a child that is started again continues it, and for a second person who signs
    the same. Raises FileRefused if other money would go than the person saw, and WaitingForPerson if others must sign.
    """
    who = task.job["made_by"]
    kept = task.store.one(
        "SELECT seal FROM decision WHERE file = ? AND what = 'released' AND who = ? ORDER BY at DESC",
        task.file["id"], who,
    )  # fmt: skip
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        asked = signed(ledger, task.file["id"], who, kept["seal"] if kept else "")
    decisions = Decisions(release=True, reason=asked.reason, rows=frozenset(asked.rows))
    release, name = options_of(task.file).get("release", {}), task.file["name"]
    if release.get("asked") != [*asked]:
        maker = task.actor(task.file["uploaded_by"])
        with task.upload() as path:
            request = request_of(task.file, path, settings)
            plan = dry_run(request, settings, maker, decisions, requests_max=0, results=None, with_plan=True).plan
        assert plan is not None, "it was asked for"
        release = {"asked": asked, "plan": plan.text()}
    with closing(open_ledger(settings.ledger, read_only=True)) as ledger:
        view = view_plan(PlanText(name, release["plan"]), ledger, settings)
        if view.plan.totals("total") - view.plan.totals("held_back") != Totals(len(asked.rows), asked.cents):
            raise FileRefused("other payments would be sent than the page showed. Nothing was released")
        if who not in {one.who.name for one in view.plan.approvals}:
            view = add_approval(PlanText(name, release["plan"]), view.plan.seal, ledger, settings, task.actor())
            release |= {"plan": view.plan.text(), "by": [one.who.name for one in view.plan.approvals]}
            with task.store.write() as db:
                options = json.dumps(options_of(task.file) | {"release": release})
                db.execute("UPDATE file SET options = ? WHERE id = ?", (options, task.file["id"]))
                task.store.note(db, who, task.file["id"], f"said of the release: {asked.reason}")
    if len(view.counted) < view.needed:
        missing = counted(view.needed - len(view.counted), "more person", "more people")
        raise WaitingForPerson(f"{missing} must sign this release. Nothing was released")
    return PlanText(name, release["plan"]), decisions


def _is_begun(task: Task) -> bool:
    """Return whether what was approved is registered: then the ledger says what of it was sent and what waits."""
    with suppress(FileRefused), closing(open_ledger(task.settings.ledger, read_only=True)) as ledger:
        plan = Plan.parse(PlanText(task.file["name"], task.file["plan"]), ledger)
        return ledger.batch_of_plan(plan.id) is not None
    return False  # a plan that was changed starts nothing


def _send_back(task: Task, error: BatchpayError) -> int:
    """Send the file back to be checked and approved again: what would be sent now is not what was approved."""
    why = changed_since(error.lines) if isinstance(error, NotAsApproved) else str(error)
    with task.store.write() as db:
        told = f"Nothing was sent: {why}. Check the file again."
        task.store.move(db, task.file["id"], "sending", "checked", told=told, plan=None, seal=None)
        task.store.note(db, "batchpay", task.file["id"], f"sent nothing: {why}")
    return error.exit_code


def _end(task: Task, state: str, told: str | None, code: int, **values: str | None) -> int:
    with task.store.write() as db:
        ended = task.store.clock()
        if task.job["kind"] == "release" and code != WaitingForPerson.exit_code:  # a second person signs what is kept
            values["options"] = json.dumps({key: one for key, one in options_of(task.file).items() if key != "release"})
        if task.store.move(db, task.file["id"], "sending", state, told=told, stop_by=None, ended_at=ended, **values):
            said = "finished the run" if state == "done" else f"stopped: {told or 'payments are waiting'}"
            task.store.note(db, "batchpay", task.file["id"], said)
    return code


def _leave_wanted(stop: StopRequest | None) -> None:
    """End here if a signal ended the run: the job stays wanted, and a server starts it again."""
    if stop is not None and stop.signalled:
        raise SystemExit(RunStopped.exit_code)


class _Progress:
    """See workflows.run.Progress."""

    def __init__(self, task: Task, writer: ProgressWriter) -> None:
        self._task = task
        self._writer = writer

    def begin(self, batch: BatchSummary, to_send: Totals) -> None:
        """Name the batch in the file's row, so that the page reads the ledger from now on."""
        with self._task.store.write() as db:
            db.execute("UPDATE file SET batch = ? WHERE id = ?", (batch.batch, self._task.file["id"]))
        self._writer.write(now=True, step="sending")

    def update(self, tally: Tally, throttle: Throttle) -> None:
        """Report the pace; how many were sent is read from the ledger."""
        state = throttle.state()
        self._writer.write(step="sending", rate=state.rate, paused_s=state.paused_s)

    def say(self, text: str) -> None:
        """Report a line that a person should see."""
        self._writer.write(now=True, step="sending", said=text)


@contextmanager
def _watched(task: Task, stop: StopRequest) -> Iterator[None]:
    """Check periodically whether a person has asked for a stop."""
    done = threading.Event()

    def check() -> None:
        while True:
            file = task.store.file(task.file["id"])
            if file is not None and file["stop_by"]:
                stop.ask(f"stopped by {file['stop_by']}")
            if done.wait(_CHECK_EVERY_S):
                break
        task.store.close()

    watcher = threading.Thread(target=check, name="stop", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
