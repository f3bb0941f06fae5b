"""Batches for the ledger's tests: rows whose bodies carry a canary account number that must stay unreadable."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date

from batchpay.ledger.columns import PackedTexts, PaymentColumns, RejectedColumns
from batchpay.ledger.contract import Ledger, Run
from batchpay.ledger.records import NewBatch, SignOff
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Environment, State

CANARY = "4929871003216789"
"""An account number; only its last four may ever be seen."""

ACCEPTED = Outcome(State.ACCEPTED, "success", Answer(200, "1", "Approved", "TX-77"), bytes_sent=900)
DECLINED = Outcome(State.DECLINED, "declined", Answer(402, None, "No funds", None), bytes_sent=900)
IN_DOUBT = Outcome(State.IN_DOUBT, "connection closed without an answer", Answer(), bytes_sent=900)
NOT_SENT = Outcome(State.PENDING, "429", Answer(429), bytes_sent=900)


def body_of(row: int) -> str:
    """The exact text that a row's request has."""
    return json.dumps({"row": row, "ach": {"achAccountNumber": CANARY, "achNameOnCheck": "Zoë Ω"}}, ensure_ascii=False)


def digests(ledger: Ledger, purpose: str, texts: Sequence[str], size: int) -> list[bytes]:
    """Keyed digests of texts that are all there."""
    return [digest for digest in ledger.digest(purpose, texts, size) if digest is not None]


def columns(
    ledger: Ledger,
    rows: Iterable[int],
    *,
    named: Iterable[int] = (),
    salt: str = "",
    id_salt: str = "",
    amount_cents: int | None = None,
    pay_on: Mapping[int, date] | None = None,
) -> PaymentColumns:
    """Payments; rows in `named` carry a paymentId, `salt` makes their fingerprints differ from other batches."""
    numbers, with_id = list(rows), set(named)
    return PaymentColumns(
        rows=numbers,
        lines=[row + 1 if row % 7 else None for row in numbers],
        amounts_cents=[row * 100 + 1 if amount_cents is None else amount_cents for row in numbers],
        directions=["CREDIT" if row % 3 == 0 else "DEBIT" for row in numbers],
        fingerprints=digests(ledger, "fingerprint", [f"{salt}{CANARY}{row}" for row in numbers], 16),
        payment_ids=ledger.digest("id", [f"{id_salt}P{row}" if row in with_id else None for row in numbers], 16),
        payees=digests(ledger, "payee", [f"payee {row}" for row in numbers], 8),
        accounts=digests(ledger, "account", [f"{CANARY}{row}" for row in numbers], 8),
        details=PackedTexts.of(
            json.dumps({"name": f"Zoë {row}", "account": f"****{CANARY[-4:]}"}, ensure_ascii=False) for row in numbers
        ),
        bodies=PackedTexts.of(body_of(row) for row in numbers),
        pay_on=[pay_on[row].toordinal() if row in pay_on else None for row in numbers] if pay_on else (),
    )


def rejected(rows: Iterable[int]) -> RejectedColumns:
    """Rows that failed two rules each."""
    numbers = list(rows)
    return RejectedColumns(
        numbers, [row + 1 for row in numbers], [row * 100 + 1 for row in numbers],
        ["amount.format achRoutingNumber.checksum"] * len(numbers),
    )  # fmt: skip


def new_batch(
    ledger: Ledger,
    rows: int,
    *,
    content: bytes = b"one",
    again: str | None = None,
    environment: Environment = Environment.TEST,
    file_digest: str = "",
) -> NewBatch:
    """What is known of a batch before its rows are written."""
    stream = ledger.digest_stream("batch")
    stream.update(content)
    return NewBatch(
        digest=stream.digest(), file="payments.csv", columns=("memo", "Größe"), rows=rows,
        options={"normalize": False, **({"file_digest": file_digest} if file_digest else {})},
        origin="http://127.0.0.1:9", environment=environment,
        registration_count_seen=ledger.registration_count(), again_reason=again,
    )  # fmt: skip


def register(
    ledger: Ledger,
    payments: PaymentColumns,
    rejects: RejectedColumns | None = None,
    *,
    content: bytes = b"one",
    again: str | None = None,
    environment: Environment = Environment.TEST,
    file_digest: str = "",
) -> str:
    """Register a batch; gives its name."""
    rows = len(payments.rows) + (len(rejects.rows) if rejects else 0)
    batch = new_batch(ledger, rows, content=content, again=again, environment=environment, file_digest=file_digest)
    with ledger.register(batch, "ada") as registering:
        registering.add_payments(payments)
        if rejects:
            registering.add_rejected(rejects)
        return registering.finish()


@contextmanager
def held_run(ledger: Ledger, batch: str) -> Iterator[Run]:
    """Hold a batch and begin a run of it, which the caller ends, or leaves as if it was killed."""
    with ledger.lock(ledger.find(batch).digest):
        yield ledger.start(batch, "ada")


def send(ledger: Ledger, batch: str | None, outcomes: Mapping[int, Outcome], stopped: str | None = None) -> None:
    """Send rows of a batch, the latest if none is named, in a run of their own, with these outcomes."""
    with held_run(ledger, batch or ledger.find(None).batch) as run:
        assert run.commit(list(outcomes), []) == set(outcomes)
        run.commit([], list(outcomes.items()))
        run.finish(stopped)


def states(ledger: Ledger, batch: str) -> dict[int, State]:
    """The state of every row that passed the rules."""
    return {row.row: row.state for row in ledger.rows(batch)}


def release(
    ledger: Ledger,
    name: str,
    payments: Sequence[PaymentColumns],
    who: str,
    why: str,
    sign_off: SignOff | None = None,
) -> int:
    """Release rows right after the look for earlier payments."""
    seen = ledger.registration_count()
    return ledger.release(name, payments, who, why, registration_count_seen=seen, sign_off=sign_off)
