"""Notices: tell `notify.url` what a person should hear of, after it was committed. They never change how a call ends.

A notice that asks for a decision is kept beside the ledger and sent by the next calls, until it has arrived or the
decision is made. All notices of a call have little time together, and after the first that fails no more is sent.
Address and key are secrets: no message has them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchpay.errors import BatchpayError, NotUsable, SettingsNotUsable
from batchpay.gateway.origin import environment_of
from batchpay.ledger.open import location
from batchpay.operations.health import HealthFinding
from batchpay.payment import Direction, State, Totals
from batchpay.settings import Secret, Settings, read_secret_file
from batchpay.text import counted, instant, masked, printable
from batchpay.writing.atomic import atomic_writer

if TYPE_CHECKING:  # what opens a socket is loaded where a notice is sent
    from batchpay.approval.plan import Plan
    from batchpay.ledger.records import BatchSummary
    from batchpay.operations.ping import Address


class Notice(StrEnum):
    """What a notice tells."""

    APPROVAL_REQUESTED = "approval_requested"
    APPROVAL_GIVEN = "approval_given"
    APPROVAL_TURNED_DOWN = "approval_turned_down"
    DOUBT = "doubt"
    STOPPED = "stopped"
    FINISHED = "finished"
    RETURNS = "returns"
    LIMIT = "limit"
    POLICY_LOWERING = "policy_lowering"


_ASKING = (Notice.APPROVAL_REQUESTED, Notice.POLICY_LOWERING)
"""Notices of what somebody has to decide."""
_KEPT_FOR = timedelta(days=31)
_BYTES_MAX = 1 << 20
_PAGES = {Notice.APPROVAL_REQUESTED: "/to-approve", Notice.POLICY_LOWERING: "/to-approve", Notice.DOUBT: "/doubts"}


@dataclass(slots=True)
class _Notices:
    """What is known of one call's notices."""

    address: Address | None = None
    key: Secret | None = None
    is_silent: bool = False


_CALL: ContextVar[_Notices] = ContextVar("notices")
"""Of one command, or of one thread of the page."""


def notify(
    settings: Settings,
    notice: Notice | None,
    *,
    batch: str | None = None,
    file: str | None = None,
    apart: Mapping[str, Totals] | None = None,
    about: str | None = None,
) -> str | None:
    """Send a notice of what was just committed, if `notify.url` is set; return what went wrong, or None.

    `apart` has the rows and cents that it is about, by DEBIT and CREDIT. `about` names what has to be decided, a file's
    digest for one: a notice that asks for it is sent once, and again by later calls until it has arrived; any other
    notice about it, or None, says that nobody has to decide it anymore. Never raises.
    """
    if not is_set(settings):
        return None
    try:
        environment, path = environment_of(settings.gateway), kept_path(settings)
    except BatchpayError as error:  # settings that the call itself tells of
        return f"{error}; no notice was sent"
    apart, link = apart or {}, settings.notify.link.rstrip("/")
    page = (notice and _PAGES.get(notice)) or (f"/batches/{batch}" if batch else "/")
    body = {
        "id": secrets.token_hex(16),
        "event": notice,
        "at": instant(datetime.now(UTC)),
        "environment": str(environment),
        "batch": batch,
        "file": file and printable(masked(Path(file).name), characters_max=100),
        "rows": sum(one.rows for one in apart.values()),
        "cents": {side: one.cents for side, one in apart.items() if one.rows},
        "link": link + page if settings.notify.link else None,
    }
    kept = _read_kept(path)
    before, problem = json.dumps(kept), None
    if about is not None and notice in _ASKING:
        kept.setdefault(about, {"arrived": False, "notice": body})
    else:
        kept.pop(about or "", None)
        problem = None if notice is None else _send(settings, body)
    return _send_kept(settings, path, kept, before) or problem


def notify_plan(settings: Settings, notice: Notice | None, plan: Plan, *, is_decided: bool = True) -> str | None:
    """Send a notice of a plan's approval, as `notify` does; `is_decided` says whether nobody else has to."""
    about = plan.content["digest"] if is_decided or notice in _ASKING else None
    apart = {str(side): plan.totals(side) for side in Direction}
    return notify(settings, notice, file=plan.content["file"], apart=apart, about=about)


def notify_wait(settings: Settings, batch: BatchSummary) -> str | None:
    """Ask for the approval of what is due of a batch that was registered before."""
    apart, about = batch.due_apart_by(batch.today), batch.digest.hex()
    return notify(settings, Notice.APPROVAL_REQUESTED, batch=batch.batch, file=batch.file, apart=apart, about=about)


def notify_run(settings: Settings, before: BatchSummary, finished: BatchSummary) -> str | None:
    """Send the notices of a run: new doubts, and how it ended if it sent anything or was stopped."""
    name, file, about = finished.batch, finished.file, finished.digest.hex()
    problem = None
    if finished.by_state[State.IN_DOUBT].rows > before.by_state[State.IN_DOUBT].rows:
        problem = notify(settings, Notice.DOUBT, batch=name, file=file, apart=finished.apart[State.IN_DOUBT])
    if (stopped := finished.stopped) or finished.work.total.rows:
        ended = Notice.FINISHED if not stopped else Notice.LIMIT if stopped.startswith("limits.") else Notice.STOPPED
        waiting = finished.due_apart_by(finished.today)
        apart = waiting if stopped else finished.apart.get(State.ACCEPTED, {})
        problem = notify(settings, ended, batch=name, file=file, apart=apart, about=about) or problem
    return problem


def is_set(settings: Settings) -> bool:
    """Return whether notices are wanted."""
    return bool(settings.notify.url or settings.notify.url_file)


def look(settings: Settings) -> HealthFinding:
    """Check whether notices can be sent, without sending one, and whether those that ask for decisions arrived."""
    try:
        _open(settings)
        waiting = sum(not one["arrived"] for one in _read_kept(kept_path(settings)).values())
    except BatchpayError as error:
        return HealthFinding("notices", f"{error}: no notice is sent", 5)
    told = f"{counted(waiting, 'notice has', 'notices have')} not arrived: the next call sends again" if waiting else ""
    return HealthFinding("notices", told or "no notice waits to be sent again", warns=bool(waiting))


def kept_path(settings: Settings) -> Path:
    """Return the path of the notices that ask for decisions, beside the ledger."""
    ledger = location(settings.ledger).ledger
    return ledger.with_name(f"{ledger.name}.notices")


def _send_kept(settings: Settings, path: Path, kept: dict[str, Any], before: str) -> str | None:
    """Send what has not arrived, and keep what remains."""
    problem = None
    for one in kept.values():
        if not one["arrived"] and problem is None:
            problem = _send(settings, one["notice"])
            one["arrived"] = not problem and not _CALL.get().is_silent
    oldest = instant(datetime.now(UTC) - _KEPT_FOR) or ""
    kept = {about: one for about, one in kept.items() if one["notice"]["at"] >= oldest}
    if json.dumps(kept) != before:
        with suppress(NotUsable, OSError):  # the notice is sent once more
            if path.parent.stat().st_uid == os.geteuid():
                with atomic_writer(path) as file:
                    file.write(json.dumps(kept).encode())
    return problem


def _send(settings: Settings, body: Mapping[str, Any]) -> str | None:
    """Send one notice, unless an earlier one of this call has failed."""
    try:
        call = _CALL.get()
    except LookupError:
        _CALL.set(call := _Notices())
    if call.is_silent:
        return None
    try:
        if call.address is None:
            call.address, call.key = _open(settings)
        assert call.key is not None, "it is read with the address"
        data, at = json.dumps(body).encode(), str(int(time.time()))
        signed = hmac.new(call.key.reveal().encode(), f"{body['id']}.{at}.".encode() + data, hashlib.sha256)
        problem = call.address.send(
            "",
            max(call.address.left_s, 0.1),
            data,
            {
                "Content-Type": "application/json",
                "Batchpay-Id": body["id"],
                "Batchpay-Time": at,
                "Batchpay-Signature": f"sha256={signed.hexdigest()}",
            },
        )
    except BatchpayError as error:
        problem = str(error)
    call.is_silent = problem is not None
    return problem and f"{problem}; no notice was sent"


def _open(settings: Settings) -> tuple[Address, Secret]:
    """Return the address and the key; raises NotUsable or WrongUse, which show neither."""
    from batchpay.operations.ping import Address

    wanted = settings.notify
    if not wanted.key_file:
        raise SettingsNotUsable("notify.key_file (BATCHPAY_NOTIFY_KEY_FILE) is not set")
    key = read_secret_file(Path(wanted.key_file), "notify.key_file")
    url = wanted.url_file and read_secret_file(Path(wanted.url_file), "notify.url_file").reveal()
    return Address(url or wanted.url, "notify.url", wanted.timeout_s, with_query=True), key


def _read_kept(path: Path) -> dict[str, Any]:
    """Read what asks for decisions; a file that can't be read has none."""
    try:
        with path.open("rb") as file:
            kept = json.loads(file.read(_BYTES_MAX))
        return {about: one for about, one in kept.items() if one["notice"]["at"] and one["arrived"] in (True, False)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
