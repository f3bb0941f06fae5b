"""Real ledgers with batches in chosen states, written only through the ledger's contract."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from batchpay.ledger.columns import PackedTexts, PaymentColumns, RejectedColumns
from batchpay.ledger.contract import Ledger
from batchpay.ledger.open import open_ledger
from batchpay.ledger.records import NewBatch
from batchpay.outcome import Answer, Outcome
from batchpay.payment import Environment, State
from batchpay.settings import LedgerSettings

ORIGIN = "http://127.0.0.1:9"
"""Nothing listens there: a batch from the tests can never be sent by accident."""


@dataclass(frozen=True)
class Planned:
    """A row as it should be in the ledger."""

    row: int
    state: State = State.ACCEPTED
    amount_cents: int = 1250
    direction: str = "DEBIT"
    invoice: str | None = None
    """What was sent as invoiceNumber; `INV-` and the row by default."""
    name: str = "Ada Quill"
    last_four: str = "6789"
    reference: str | None = None
    message: str | None = None
    reason: str = "recorded by a test"


def ledger_settings(folder: Path) -> LedgerSettings:
    """Return where a test's ledger is; the witness is next to the key."""
    return LedgerSettings(url=str(folder / "state" / "ledger.db"), key_file=str(folder / "keys" / "ledger.key"))


def ledger_environment(folder: Path) -> dict[str, str]:
    """Return the variables by which the installed command finds the test's ledger."""
    places = ledger_settings(folder)
    return {"BATCHPAY_LEDGER": places.url, "BATCHPAY_LEDGER_KEY_FILE": places.key_file, "BATCHPAY_BASE_URL": ORIGIN}


@contextmanager
def ledger_in(folder: Path) -> Iterator[Ledger]:
    """Open the test's ledger for writing; create it if there is none."""
    with closing(open_ledger(ledger_settings(folder), create_as="tester")) as ledger:
        yield ledger


def add_batch(
    ledger: Ledger,
    rows: Sequence[Planned],
    *,
    file: str = "payments.csv",
    rejected: Sequence[tuple[int, int, str]] = (),
    carried: Sequence[str] = (),
    stopped: str | None = None,
    environment: Environment = Environment.TEST,
) -> str:
    """Register a batch and bring its rows to their states; `rejected` holds (row, cents, reasons). Returns its name.

    `carried` are columns of the file's own; each row holds their names in them.

    With rows in `sending` the run is left unfinished, like one that was killed.
    """
    content = ledger.digest_stream("batch")
    content.update(repr((file, rows, rejected)).encode())
    digest = content.digest()
    new = NewBatch(
        digest=digest, file=file, columns=tuple(carried), rows=len(rows) + len(rejected), options={}, origin=ORIGIN,
        environment=environment,
        registration_count_seen=ledger.registration_count(),
    )  # fmt: skip
    with ledger.register(new, "tester") as registering:
        if rows:
            registering.add_payments(_columns(ledger, rows, carried))
        if rejected:
            numbers, cents, reasons = (list(column) for column in zip(*rejected, strict=True))
            registering.add_rejected(RejectedColumns(numbers, [row + 1 for row in numbers], cents, reasons))
        name = registering.finish()
    _send(ledger, name, digest, rows, stopped)
    return name


def invoice_of(row: Planned) -> str:
    """Return the invoiceNumber that a planned row was sent with."""
    return f"INV-{row.row}" if row.invoice is None else row.invoice


def _columns(ledger: Ledger, rows: Sequence[Planned], carried: Sequence[str]) -> PaymentColumns:
    texts = [f"{row.row} {row.last_four} {row.amount_cents} {invoice_of(row)}" for row in rows]
    names: list[str | None] = [row.name for row in rows]
    own = {"carried": list(carried)} if carried else {}
    return PaymentColumns(
        rows=[row.row for row in rows],
        lines=[row.row + 1 for row in rows],
        amounts_cents=[row.amount_cents for row in rows],
        directions=[row.direction for row in rows],
        fingerprints=[digest for digest in ledger.digest("fingerprint", texts, 16) if digest],
        payment_ids=[None] * len(rows),
        payees=[digest for digest in ledger.digest("payee", names, 8) if digest],
        accounts=[digest for digest in ledger.digest("account", texts, 8) if digest],
        details=PackedTexts.of(json.dumps(_details(row) | own, ensure_ascii=False) for row in rows),
        bodies=PackedTexts.of(json.dumps({"row": row.row}) for row in rows),
    )


def _details(row: Planned) -> dict[str, object]:
    """Return what registration writes of a row for results and reports."""
    return {
        "invoiceNumber": invoice_of(row),
        "gatewayId": "1001",
        "transactionType": row.direction,
        "recurringIndicator": "FALSE",
        "currencyCode": "USD",
        "name": row.name,
        "account": f"****{row.last_four}",
    }


def _send(ledger: Ledger, name: str, digest: bytes, rows: Sequence[Planned], stopped: str | None) -> None:
    begun = [row for row in rows if row.state is not State.PENDING]
    if not begun:
        return
    with ledger.lock(digest):
        run = ledger.start(name, "tester")
        assert run.commit([row.row for row in begun], []) == {row.row for row in begun}
        run.commit([], [(row.row, _outcome(row)) for row in begun if row.state is not State.SENDING])
        if all(row.state is not State.SENDING for row in rows):
            run.finish(stopped)


def _outcome(row: Planned) -> Outcome:
    answered = row.state is not State.IN_DOUBT
    answer = Answer(200, None, row.message, row.reference) if answered else Answer(gateway_reference=row.reference)
    return Outcome(row.state, row.reason, answer, bytes_sent=100)
