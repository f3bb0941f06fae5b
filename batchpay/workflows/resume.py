"""Go on with a registered batch; its payment file is no longer needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from batchpay.gateway.origin import environment_of
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Actor
from batchpay.settings import Credentials, Settings
from batchpay.summary import Summary, summary_of_batch
from batchpay.workflows.run import Progress, RunRequest, run_batch


def resume(
    reference: str | None,
    output_path: Callable[[BatchSummary], Path],
    request: RunRequest,
    settings: Settings,
    credentials: Credentials,
    actor: Actor,
    progress: Progress,
) -> Summary:
    """Send what is pending of a batch, the latest where none is named, and write its results to `output_path`."""
    with closing(open_ledger(settings.ledger)) as ledger:
        found = ledger.find(reference, None if reference else environment_of(settings.gateway))
        request = replace(request, results=output_path(found))
        with ledger.lock(found.digest):
            finished = run_batch(ledger, found, settings, credentials, request, actor, progress)
    return summary_of_batch(finished)
