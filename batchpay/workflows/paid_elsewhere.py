"""The alarm that another ledger paid a file: results where ours would go, of a batch that this ledger does not know."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchpay.errors import FileRefused, SettingsNotUsable
from batchpay.gateway.origin import check_origin, environment_of
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment, State
from batchpay.settings import Settings
from batchpay.workflows.decisions import Decisions
from batchpay.writing.atomic import FileIdentity
from batchpay.writing.place import first_row, standing

if TYPE_CHECKING:
    from batchpay.ledger.records import BatchSummary


def refuse_paid_elsewhere(ledger: Ledger, results: Path | None, environment: Environment) -> None:
    """Raise FileRefused if results are there that name, for this environment, a batch that this ledger does not know.

    Results of an earlier version name no environment: they count for each. Those with a number count as well: results
    of a rehearsal, or last month's of the same name, may have the name without one.
    """
    known: set[str] | None = None
    for path in standing(results) if results is not None else ():
        found = first_row(path, saved_anew=True) or {}
        batch = found.get("batch")
        if not batch or (found.get("environment") or environment) != environment:
            continue
        known = {one.batch for one in ledger.batches()} if known is None else known
        if batch not in known:
            raise FileRefused(
                f"{path} has the results of batch {batch}, which this ledger does not know: another ledger may have "
                "paid this file, or this one before it was restored from a backup. Check there first; if no row of it "
                "was paid, submit with --paid-elsewhere-checked --reason TEXT"
            )


def must_check_elsewhere(known: BatchSummary | None, decisions: Decisions, *, releases: bool) -> bool:
    """Return whether a submission checks who else may have paid: not if nothing is left to send or a person checked.

    A batch that this ledger knows is checked as well: another ledger may have paid it since this one was stopped.
    """
    if decisions.paid_elsewhere_checked:
        return False
    if known is None:
        return True
    waits = known.by_state[State.PENDING].rows or releases
    return bool(waits) and "paid_elsewhere_checked" not in known.options


def refuse_moved(path: str, read: FileIdentity | None) -> None:
    """Raise FileRefused if the file that was read is no longer at its path.

    A run with another ledger may have paid and archived it meanwhile, and moved its results too.
    """
    if read is None:  # a stream
        return
    try:
        found = Path(path).stat()
    except OSError:
        found = None
    if found is None or (found.st_dev, found.st_ino) != (read.device, read.inode):
        raise FileRefused(
            f"{path} was moved or replaced while it was read: another run may have paid and archived it. If not, run "
            "the command again"
        )


def refuse_other_environment(ledger: Ledger, settings: Settings) -> None:
    """Raise SettingsNotUsable if the latest batch for this same gateway belongs to the other environment.

    What was sent there as test is not a duplicate for live, nor the reverse: a mistyped `gateway.environment` would pay
    everything once more.
    """
    if not settings.gateway.base_url:  # checking a file needs no gateway
        return
    named, environment = check_origin(settings.gateway.base_url), environment_of(settings.gateway)
    others = [origin for other in Environment if other is not environment for origin in ledger.origins(other)]
    if named not in map(check_origin, others):
        return
    latest = next(batch for batch in ledger.batches() if check_origin(batch.origin) == named)
    if latest.environment is not environment:
        raise SettingsNotUsable(
            f"batch {latest.batch} was for {named} as a {latest.environment} gateway, and is now set to be a "
            f"{environment} one (gateway.environment, BATCHPAY_ENVIRONMENT): what was paid there would be paid again. "
            "If the gateway has changed and nothing in this file was paid: submit with --paid-elsewhere-checked "
            "--reason TEXT"
        )
