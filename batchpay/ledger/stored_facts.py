"""Recording and reading facts, whatever database holds them; see contract.Ledger and facts.py.

And whether earlier payments that a row repeats all came back: then there is nothing that it would repeat.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any, Generic, NamedTuple

from batchpay.errors import LedgerDamaged, WrongUse
from batchpay.ledger.columns import Earlier, EarlierReturn, Lookup, PersonsWord, digest_numbers
from batchpay.ledger.database import Store, Transaction, View
from batchpay.ledger.decisions import require_named
from batchpay.ledger.event_chain import DIRECTION_CODES, DIRECTIONS, maybe_datetime, to_datetime, to_ms
from batchpay.ledger.fact_statements import SEALED
from batchpay.ledger.facts import (
    CONFIRMED,
    KIND_CODES,
    KINDS,
    RECALL_REQUESTED,
    RETURNS,
    WITHDRAWN,
    Fact,
    FactKind,
    Key,
    NewFact,
    SentPayment,
)
from batchpay.ledger.payload import place_of as place_of_payload
from batchpay.ledger.payload import texts_in, unsealed
from batchpay.ledger.reading import Details, StoreT, batch_number
from batchpay.ledger.states import STATES
from batchpay.payment import Environment, SamePayment, State
from batchpay.text import compatible, place_of, place_word, read_ranges, write_ranges

_INVOICE = re.compile(rb'"invoiceNumber":("[^"\\]*(?:\\.[^"\\]*)*")')
_Place = tuple[int, int]
"""A batch's number, and a row's."""
_RETURNED = KIND_CODES[FactKind.RETURNED]
_Values = dict[str, Any]
"""A fact as it lies in its table."""


def _as_compared(text: str) -> str:
    """Return a paymentId or an invoice number as duplicates are compared."""
    return compatible(text).strip()


def _seal(store: Store, values: _Values) -> bytes:
    return store.keys.seal_values("fact", tuple(values[name] for name in SEALED))


def _stored(
    store: Store, view: View, statement: str, rows: Container[int] | None = None, **asked: Any
) -> list[_Values]:
    """Return facts as they lie in their table, of some rows; raises LedgerDamaged for one that was not recorded so."""
    found: list[_Values] = []
    for *sealed, seal in view.execute(statement, asked):
        values = dict(zip(SEALED, sealed, strict=True))
        if rows is not None and values["row"] not in rows:
            continue
        if _seal(store, values) != seal:
            raise LedgerDamaged(f"the ledger is damaged: return {values['number']} is not what was recorded")
        found.append(values)
    return found


def fact_problems(store: Store, view: View) -> list[str]:
    """Find facts that are not what was recorded or purged, of no accepted row, or unlike the history."""
    sql = store.fact_statements
    told, found = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for number, kind, detail in view.execute(sql.events):
        said = json.loads(detail)
        told[number, "cents"] = said.get("cents", 0)
        told[number, "facts"] = said["facts"] if kind == RETURNS else len(said.get("returns", ()))
    (wrong,) = view.execute(sql.unlike_rows).fetchone()
    for *sealed, seal, _ in store.stream(view, sql.every):
        values = dict(zip(SEALED, sealed, strict=True))
        wrong += _seal(store, values) != seal
        found[values["event"], "cents"] += values["amount_cents"] if values["kind"] == _RETURNED else 0
        found.update((values[name], "facts") for name in SEALED[-4:] if values[name] is not None)
    if wrong or +told != +found:
        return ["the ledger is damaged: returns are not what was recorded"]
    return []


def _note(store: Store, transaction: Transaction, values: _Values, what: str, event: int) -> None:
    """Note the event in which a person said more of a fact: it confirmed, withdrew or lifted it."""
    values = values | {what: event}
    asked = {"event": event, "seal": _seal(store, values), "number": values["number"]}
    transaction.execute(store.fact_statements.note.format(what), asked)


def counted_returns(store: Store, view: View, batch: int) -> dict[int, _Values]:
    """Return by row the returns of a batch that a person has seen, of payments that are made once."""
    return {
        one["row"]: one
        for one in _stored(store, view, store.fact_statements.of_batch, batch=batch)
        if one["kind"] == _RETURNED and not one["recurring"] and one["withdrawn"] is None
        if not one["unattended"] or one["confirmed"] is not None
    }


def lift(store: Store, transaction: Transaction, batch: int, accounts: Sequence[bytes]) -> dict[str, list[int]]:
    """Let returns no longer speak against accounts, by the next event, which releases rows; return what it notes."""
    if not accounts:
        return {}
    sql = store.fact_statements
    (environment,) = transaction.execute(sql.environment, {"batch": batch}).fetchone()
    (event,) = transaction.execute(sql.next_event).fetchone()
    found = _stored(store, transaction, sql.of_accounts, environment=environment, accounts=_hex(accounts))
    returns = [values for values in found if values["kind"] == _RETURNED]
    for values in returns:
        _note(store, transaction, values, "lifted", event)
    return {"returns": [values["number"] for values in returns]}


def _hex(accounts: Iterable[bytes]) -> str:
    return json.dumps([account.hex().upper() for account in {*accounts}])


class _Look:
    """Facts and payments of one environment in one consistent view."""

    def __init__(self, store: Store, view: View, environment: Environment) -> None:
        self._store, self._view, self._sql = store, view, store.fact_statements
        self._of = {"environment": environment.value}
        found = view.execute(self._sql.batches, self._of).fetchall()
        self.names: dict[int, tuple[str, str]] = {number: (name, file) for number, name, file in found}
        """Name and file of its batches."""
        self._has_older = any(view.execute(store.statements.HAS_OLDER_DIGESTS).fetchone() or ())
        self._files: dict[int, tuple[int, str, str]] = {}

    def facts(self, statement: str, rows: Container[int] | None = None, **asked: Any) -> list[Fact]:
        """Return recorded facts, of some rows."""
        found = _stored(self._store, self._view, statement, rows, **self._of, **asked)
        lines = {
            (batch, row): line
            for batch, rows in _by_batch((one["batch"], one["row"]) for one in found).items()
            for row, line, *_ in self._rows(batch, rows)
        }
        return [self._fact(one, lines[one["batch"], one["row"]]) for one in found]

    def _fact(self, values: _Values, line: int | None) -> Fact:
        at, who, file = self._taken_in(values["event"])
        name, paid_by = self.names[values["batch"]]
        return Fact(
            number=values["number"], kind=KINDS[values["kind"]], batch=name, row=values["row"],
            place=place_of(place_word(paid_by), values["row"], line), code=values["code"],
            day=date.fromordinal(values["day"]), amount_cents=values["amount_cents"],
            direction=DIRECTIONS[values["direction"]], account=bytes.fromhex(values["account"]), line=values["line"],
            is_recurring=bool(values["recurring"]), taken_at=to_datetime(at), who=who, file=file,
            is_unattended=bool(values["unattended"]) and values["confirmed"] is None,
            withdrawn=values["withdrawn"] is not None, lifted=values["lifted"] is not None,
        )  # fmt: skip

    def _taken_in(self, event: int) -> tuple[int, str, str]:
        """Return when and by whom, and the file's name."""
        if event not in self._files:
            at, who, detail = self._view.execute(self._sql.event, {"number": event}).fetchone()
            self._files[event] = at, who, json.loads(detail)["file"]
        return self._files[event]

    def _rows(self, batch: int, rows: Iterable[int]) -> list[Any]:
        asked = {"batch": batch, "rows": json.dumps(sorted(rows))}
        return list(self._view.execute(self._sql.payments, asked))

    def payments(self, places: Iterable[_Place]) -> dict[_Place, SentPayment]:
        """Return rows that passed the rules."""
        found: dict[_Place, SentPayment] = {}
        for batch, rows in _by_batch(place for place in places if place[0] in self.names).items():
            facts: defaultdict[int, list[Fact]] = defaultdict(list)
            for fact in self.facts(self._sql.of_batch, rows, batch=batch):
                if not fact.withdrawn:
                    facts[fact.row].append(fact)
            known = sorted(self._rows(batch, rows), key=lambda row: row[0])
            texts = Details(self._store, self._view, batch).read([one[0] for one in known], [one[-1] for one in known])
            for (row, line, state, cents, direction, sent_at, account, _), text in zip(known, texts, strict=True):
                found[batch, row] = SentPayment(
                    self.names[batch][0], row, line, STATES[state], cents, DIRECTIONS[direction],
                    maybe_datetime(sent_at), account, b'"recurringIndicator":"TRUE"' in text, tuple(facts[row]),
                )  # fmt: skip
        return found

    def places(self, by: Key, values: Sequence[str | bytes], since: datetime | None) -> dict[str | bytes, set[_Place]]:
        """Return where payments are, by what names them."""
        values_of: defaultdict[Any, list[str | bytes]] = defaultdict(list)
        for value in dict.fromkeys(values):
            for key in self._keys(by, value):
                values_of[key].append(value)
        asked = {**self._of, "since": to_ms(since) if since else 0, "wanted": json.dumps(list(values_of))}
        found: defaultdict[str | bytes, set[_Place]] = defaultdict(set)
        places = (
            self._of_invoices(values_of, asked)
            if by == "invoice"
            else self._view.execute(self._sql.payments_by[by], asked)
        )
        for key, *place in places:
            for value in values_of[key]:
                found[value].add((place[0], place[1]))
        return found

    def _keys(self, by: Key, value: str | bytes) -> set[Any]:
        """Return by what payments are found that have this paymentId, reference, invoice number or account."""
        if isinstance(value, bytes):
            return {value.hex().upper()}
        if by != "payment_id":
            return {value.strip() if by == "reference" else _as_compared(value)}
        texts = [_as_compared(value), *([value] if self._has_older else [])]
        return {*digest_numbers([one for one in self._store.keys.digest("payment id", texts, 16) if one])}

    def _of_invoices(self, wanted: Collection[str], asked: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
        """Yield those wanted with batch and row of each payment, out of the details of batches.

        A digest in every row would make registering a tenth slower; a million details are searched in a second, where
        only few are wanted: then most chunks, looked through as a whole, have none of them.
        """
        spelled = {json.dumps(invoice, ensure_ascii=False)[1:-1] for invoice in wanted}
        for (batch,) in self._view.execute(self._sql.batches_since, asked).fetchall():
            for chunk, sealed in self._store.stream(self._view, self._sql.details, {"batch": batch}):
                place = place_of_payload("details", batch, chunk)
                plain = unsealed(self._store.keys, place, sealed)
                invoices = compatible(b"\n".join(_INVOICE.findall(plain)).decode(errors="replace")).split("\n")
                if spelled.isdisjoint(invoice[1:-1].strip() for invoice in invoices):
                    continue
                for row, text in texts_in(plain, place)[0].items():
                    if (found := _INVOICE.search(text)) and (invoice := _as_compared(json.loads(found[1]))) in wanted:
                        yield invoice, batch, row


def _by_batch(places: Iterable[_Place]) -> dict[int, set[int]]:
    found: defaultdict[int, set[int]] = defaultdict(set)
    for batch, row in places:
        found[batch].add(row)
    return found


class StoredFacts(Generic[StoreT]):
    """The part of a ledger that is about facts; see contract.Ledger."""

    store: StoreT

    def sent_rows(
        self, by: Key, values: Sequence[str | bytes], environment: Environment, since: datetime | None = None
    ) -> Mapping[str | bytes, list[SentPayment]]:
        with self.store.reading() as view:
            look = _Look(self.store, view, environment)
            places = look.places(by, values, since)
            found = look.payments({place for some in places.values() for place in some})
            by_value = {
                value: [found[place] for place in sorted(some) if place in found] for value, some in places.items()
            }
            return {value: payments for value, payments in by_value.items() if payments}

    def record_facts(
        self,
        facts: Sequence[NewFact],
        environment: Environment,
        file: str,
        file_digest: str,
        who: str,
        *,
        unattended: bool,
    ) -> int:
        store: Store = self.store
        with store.transaction() as transaction:
            transaction.registrations()  # until the end nobody else records any
            return _Recording(store, transaction, environment).record(facts, file, file_digest, who, unattended)

    def confirm_fact(self, batch: str, row: int, who: str, why: str, code: str | None = None) -> int:
        return self._say(CONFIRMED, "confirmed", batch, row, who, why, code)

    def withdraw_fact(self, batch: str, row: int, who: str, why: str, code: str | None = None) -> int:
        return self._say(WITHDRAWN, "withdrawn", batch, row, who, why, code)

    def _say(self, kind: str, what: str, batch: str, row: int, who: str, why: str, code: str | None) -> int:
        require_named(f"a return is {what}", who, why)
        store: Store = self.store
        sql, (number, _) = store.fact_statements, batch_number(store, batch)
        with store.transaction() as transaction:
            transaction.registrations()
            (event,) = transaction.execute(sql.next_event).fetchone()
            said = [
                values
                for values in _stored(store, transaction, sql.of_batch, batch=number)
                if (values["row"], code or values["code"], values["withdrawn"], values[what])
                == (row, values["code"], None, None)
            ]
            if not said:
                raise WrongUse(f"row {row} of batch {batch} has no return that could be {what}")
            for values in said:
                _note(store, transaction, values, what, event)
            if what == "withdrawn":  # what repeats the payment is a duplicate again
                for statement in sql.count_registration:
                    transaction.execute(statement, {"batch": number})
            transaction.event(kind, number, who, why, {"row": row, "returns": [one["number"] for one in said]})
        return len(said)

    def facts(self, environment: Environment, *, batch: str | None = None, since: date | None = None) -> Iterator[Fact]:
        sql = self.store.fact_statements
        with self.store.reading() as view:
            look = _Look(self.store, view, environment)
            if batch is not None:
                number, _ = batch_number(self.store, batch)
                found = look.facts(sql.of_batch, batch=number) if number in look.names else []
            else:
                found = look.facts(sql.of_environment, since=since.toordinal() if since else 0)
        yield from (one for one in found if since is None or one.day >= since)

    def facts_of_accounts(self, accounts: Sequence[bytes], environment: Environment) -> Mapping[bytes, list[Fact]]:
        found: defaultdict[bytes, list[Fact]] = defaultdict(list)
        with self.store.reading() as view:
            look = _Look(self.store, view, environment)
            for fact in look.facts(self.store.fact_statements.of_accounts, accounts=_hex(accounts)):
                found[fact.account].append(fact)
        return found

    def corrected(self, fact: Fact) -> Mapping[str, str]:
        with self.store.reading() as view:
            found = view.execute(self.store.fact_statements.corrected, {"number": fact.number}).fetchone()
        if not found or found[0] is None:
            return {}
        values: dict[str, str] = json.loads(self.store.keys.unseal(found[0], _place_of_corrected(fact.number)))
        return values

    def note_recall(self, batch: str, rows: Sequence[int], who: str, why: str) -> None:
        number, _ = batch_number(self.store, batch)
        with self.store.transaction() as transaction:
            transaction.event(RECALL_REQUESTED, number, who, why, {"rows": write_ranges(rows)})

    def returned_files(self, environment: Environment) -> set[str]:
        with self.store.reading() as view:
            taken = [json.loads(detail) for (detail,) in view.execute(self.store.fact_statements.files)]
        return {one["digest"] for one in taken if one["environment"] == environment.value}


def _place_of_corrected(number: int) -> str:
    return f"corrected values of return {number}"


class _Recording:
    """Facts of one file in the transaction that records them."""

    def __init__(self, store: Store, transaction: Transaction, environment: Environment) -> None:
        self._store, self._transaction, self._environment = store, transaction, environment
        self._look = _Look(store, transaction, environment)
        self._numbers = {name: number for number, (name, _) in self._look.names.items()}

    def record(self, facts: Sequence[NewFact], file: str, file_digest: str, who: str, unattended: bool) -> int:
        sql, transaction = self._store.fact_statements, self._transaction
        payments = self._look.payments((self._numbers.get(one.batch, 0), one.row) for one in facts)
        known = {
            mark
            for batch in {number for number, _ in payments}
            for fact in self._look.facts(sql.of_batch, batch=batch)
            for mark in _marks(fact, fact.is_recurring, withdrawn=fact.withdrawn)
        }
        (number,), (event,) = (
            transaction.execute(statement).fetchone() for statement in (sql.next_fact, sql.next_event)
        )
        added: list[_Values] = []
        for one in facts:
            payment = payments.get((self._numbers.get(one.batch, 0), one.row))
            if payment is None or payment.state is not State.ACCEPTED:
                raise WrongUse(f"row {one.row} of batch {one.batch} was not accepted; nothing was recorded")
            if one.kind is FactKind.RETURNED and one.amount_cents != payment.amount_cents:
                raise WrongUse(f"row {one.row} of batch {one.batch} has another amount; nothing was recorded")
            marks = {mark for withdrawn in (True, False) for mark in _marks(one, payment.is_recurring, withdrawn)}
            if not marks.isdisjoint(known):
                continue
            known |= _marks(one, payment.is_recurring, withdrawn=False)
            values = {
                "number": number + len(added), "batch": self._numbers[one.batch], "row": one.row,
                "kind": KIND_CODES[one.kind], "code": one.code, "day": one.day.toordinal(),
                "amount_cents": one.amount_cents, "direction": DIRECTION_CODES[payment.direction],
                "account": payment.account.hex().upper(), "line": one.line, "recurring": int(payment.is_recurring),
                "unattended": int(unattended), "event": event, "confirmed": None, "withdrawn": None, "lifted": None,
            }  # fmt: skip
            added.append(values | {"seal": _seal(self._store, values), "corrected": self._sealed(one, values)})
        transaction.execute_many(sql.add, added)
        returns = [one["amount_cents"] for one in added if one["kind"] == _RETURNED]
        detail = {
            "file": file, "digest": file_digest, "environment": self._environment.value, "unattended": unattended,
            "facts": len(added), "returned": len(returns), "cents": sum(returns),
            "rows": {
                self._look.names[batch][0]: write_ranges(rows)
                for batch, rows in _by_batch((one["batch"], one["row"]) for one in added).items()
            },
        }  # fmt: skip
        transaction.event(RETURNS, None, who, None, detail)
        return len(added)

    def _sealed(self, one: NewFact, values: _Values) -> bytes | None:
        """Encrypt what a change corrects; of a batch that was purged nothing is kept."""
        if not one.corrected or self._is_purged(values["batch"]):
            return None
        return self._store.keys.seal(json.dumps(dict(one.corrected)).encode(), _place_of_corrected(values["number"]))

    @cache  # noqa: B019 - as long as the transaction
    def _is_purged(self, batch: int) -> bool:
        found = self._transaction.execute(self._transaction.statements.PURGED_AT, (batch,)).fetchone()
        return found[0] is not None


def _marks(fact: Fact | NewFact, is_recurring: bool, withdrawn: bool) -> set[tuple[Any, ...]]:
    """Return by what it is known that a fact repeats one that was recorded, or was withdrawn.

    A row comes back once, and one that is paid again and again once a day. What was withdrawn stays so.
    """
    place = (fact.kind, fact.batch, fact.row)
    if withdrawn or fact.kind is FactKind.CHANGED:
        return {(*place, fact.code, fact.day)}
    return {(*place, fact.day) if is_recurring else place}


class EarlierMatch(NamedTuple):
    """An earlier payment that a row repeats."""

    row: int
    same: int
    batch: int
    earlier_row: int
    line: int | None
    at: int
    was_cancelled: bool


def told(
    store: Store,
    view: View,
    names: Mapping[int, tuple[str, str]],
    lookup: Lookup,
    matches: Callable[[Container[int] | None], Iterable[EarlierMatch]],
) -> list[Earlier]:
    """Return what was found, the closest match of each row; `matches` finds it, or all matches of some rows.

    Where that came back and another one stands, the other one is told. Only a return that a person has seen counts,
    of a payment that is made once; of what was declined, only what a person said was. `names` has name and file of the
    batches.
    """
    found: dict[int, EarlierMatch] = {}
    for match in matches(None):
        found[match.row] = max(match, found.get(match.row, match), key=lambda one: one.same)
    returns_of = cache(lambda batch: counted_returns(store, view, batch))

    def came_back(match: EarlierMatch) -> Any:
        return returns_of(match.batch).get(match.earlier_row)

    words_of = cache(lambda batch: _declined_by_persons(store, view, batch))
    all_of: defaultdict[int, list[EarlierMatch]] = defaultdict(list)
    asked = {
        row: match.same for row, match in found.items()
        if match.same == SamePayment.DECLINED or (match.same >= SamePayment.BILL and came_back(match))
    }  # fmt: skip
    for match in matches(asked) if asked else ():
        is_word = match.same != SamePayment.DECLINED or match.earlier_row in words_of(match.batch)
        if is_word and (match.same >= SamePayment.BILL or asked[match.row] == SamePayment.DECLINED):
            all_of[match.row].append(match)
    accounts = dict(zip(lookup.rows, lookup.accounts(), strict=False)) if all_of else {}
    returned: dict[int, EarlierReturn] = {}
    for row in asked:
        if standing := [one for one in all_of[row] if one.same < SamePayment.BILL or not came_back(one)]:
            found[row] = max(standing, key=lambda one: (one.same, not one.was_cancelled, one.batch, one.earlier_row))
            continue
        if not (some := set(all_of[row])):
            del found[row]  # the gateway itself declined it
            continue
        returns = sorted((came_back(match) for match in some), key=lambda one: one["day"])
        latest, own = returns[-1], accounts.get(row, b"").hex().upper()
        returned[row] = EarlierReturn(
            latest["code"], date.fromordinal(latest["day"]), latest["amount_cents"], DIRECTIONS[latest["direction"]],
            own in {one["account"] for one in returns}, len({(one.batch, one.earlier_row) for one in some}),
            to_datetime(min(one.at for one in some)),
        )  # fmt: skip
    earlier: list[Earlier] = []
    for row, (_, same, batch, earlier_row, line, at, was_cancelled) in sorted(found.items()):
        name, file = names[batch]
        place, when = place_of(place_word(file), earlier_row, line), to_datetime(at)
        word = words_of(batch)[earlier_row] if same == SamePayment.DECLINED else None
        earlier.append(
            Earlier(row, SamePayment(same), name, earlier_row, place, when, was_cancelled, word, returned.get(row))
        )
    return earlier


def _declined_by_persons(store: Store, view: View, batch: int) -> dict[int, PersonsWord]:
    """Return by row what persons recorded as declined of a batch; the events stay when its texts are purged."""
    found: dict[int, PersonsWord] = {}
    for at, who, why, detail in view.execute(store.fact_statements.resolved, {"batch": batch}):
        for first, last in read_ranges(json.loads(detail).get(State.DECLINED.value, "")):
            found |= dict.fromkeys(range(first, last + 1), PersonsWord(to_datetime(at), who, why or ""))
    return found
