"""Which payment a line of a file of returns is about: certain, known, to be looked at by a person, or nobody's.

Keys in this order: paymentId, gateway reference, invoice number, account. The first one that finds payments decides,
unless the line has an account number and all of them went to others: then the key met a stranger by chance. An account
finds payments of the same amount and direction that may come back on that day (the window of the code). As many lines
as there are such payments are paired; otherwise nothing says which one came back, and a person decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import FactKind, Key, NewFact, SentPayment
from batchpay.payment import Environment, State
from batchpay.returns.codes import ReturnCode, return_codes
from batchpay.returns.return_file import ReturnLine
from batchpay.text import folded

_LOOKED_BACK = timedelta(days=70)
"""The longest window, and some days more."""
_SAME_DAYS = 5
"""Two sources may date one return so many days apart."""
_SENT = (State.ACCEPTED, State.IN_DOUBT)


class ReturnVerdict(StrEnum):
    """What a line is."""

    RECORDED = "recorded"
    KNOWN = "known"
    """Its payment came back already, by an earlier line."""
    PROPOSED = "proposed"
    """The account is masked: a person confirms."""
    IN_DOUBT = "in_doubt"
    """Its payment is in doubt: that it came back says that it was made."""
    LISTED = "listed"
    """A person must look."""


@dataclass(slots=True)
class Match:
    """A line and what it is."""

    line: ReturnLine
    verdict: ReturnVerdict = ReturnVerdict.LISTED
    why: str = ""
    payment: SentPayment | None = None
    perhaps: Sequence[SentPayment] = ()
    """The payments that it may be about, for a person who knows which."""
    account: bytes | None = None
    """The digest of its account; None where the line has no whole one."""

    def set(self, verdict: ReturnVerdict, why: str = "", payment: SentPayment | None = None) -> None:
        """Say what it is."""
        self.verdict, self.why, self.payment = verdict, why, payment

    @property
    def day(self) -> date:
        """Its day; a line without one is set aside."""
        assert self.line.day is not None
        return self.line.day

    @property
    def code(self) -> ReturnCode:
        """Its code in the table."""
        return return_codes()[self.line.code]

    def fact(self, payment: SentPayment) -> NewFact:
        """Return what is recorded of it beside a payment."""
        kind, place = FactKind(self.code.kind), (payment.batch, payment.row)
        cents = payment.amount_cents if kind is FactKind.RETURNED else 0
        corrected = self.code.corrections(self.line.corrected)
        return NewFact(kind, *place, self.line.code, self.day, cents, self.line.line, corrected)


_Place = tuple[str, int]


class Matcher:
    """Matches the lines of one file with the payments of an environment."""

    def __init__(self, ledger: Ledger, environment: Environment, *, reference_is_unique: bool) -> None:
        self._ledger, self._environment, self._zone = ledger, environment, ledger.zone()
        self._keys = _KEYS if reference_is_unique else tuple(by for by in _KEYS if by != "reference")
        self._taken = set[_Place]()
        """Payments that another line of the file is about."""

    def match(self, lines: Sequence[ReturnLine]) -> list[Match]:
        """Decide about every line, in order."""
        texts = [f"{one.routing}\x1f{one.account}" if one.routing and one.account else None for one in lines]
        accounts = self._ledger.digest("account", texts, 8)
        matches = [Match(line, account=account) for line, account in zip(lines, accounts, strict=True)]
        tomorrow = self._ledger.today() + timedelta(days=1)
        left = [one for one in matches if not _is_set_aside(one, tomorrow)]
        since = min((one.day for one in left), default=date.max) - _LOOKED_BACK
        groups: defaultdict[tuple[bool, bool, date | None, frozenset[_Place]], list[Match]] = defaultdict(list)
        for by in self._keys:
            named = self._found(by, left, self._environment, since)
            left = [one for one in left if id(one) not in named]
            for one, found in named.values():
                one.perhaps = self._fitting(one, found, by)
                if one.perhaps:
                    places = frozenset((payment.batch, payment.row) for payment in one.perhaps)
                    day = one.day if all(payment.is_recurring for payment in one.perhaps) else None
                    groups[by == "account", one.code.kind == FactKind.CHANGED, day, places].append(one)
        for (by_account, is_change, *_), some in sorted(groups.items(), key=lambda group: len(group[0][-1])):
            if is_change:
                for one in some:
                    _note_change(one)
            else:
                self._pair(some, by_account=by_account)
        self._propose(left)
        return matches

    def elsewhere(self, matches: Sequence[Match]) -> int:
        """Return how many lines without a payment here name one of the other environment."""
        (other,) = set(Environment) - {self._environment}
        left = [one for one in matches if one.why == NOBODY]
        since = min((one.day for one in left), default=date.max) - _LOOKED_BACK
        return len({found for by in self._keys if by != "invoice" for found in self._found(by, left, other, since)})

    def _found(
        self, by: Key, matches: Sequence[Match], environment: Environment, since: date
    ) -> dict[int, tuple[Match, list[SentPayment]]]:
        """Return the payments that a key finds, by the match (its id); without those that went to other accounts."""
        # An Individual ID is whichever of them the gateway has sent.
        values = [one.account if by == "account" else getattr(one.line, by) or one.line.payment_id for one in matches]
        asked = list({value for value in values if value})
        payments = self._ledger.sent_rows(by, asked, environment, datetime.combine(since, time(), UTC)) if asked else {}
        found = {}
        for one, value in zip(matches, values, strict=True):
            of_key = payments.get(value, []) if value else []
            if some := [each for each in of_key if one.account in (None, each.account)]:
                found[id(one)] = one, some
            elif of_key:
                one.set(ReturnVerdict.LISTED, "another account")
                one.perhaps = of_key
        return found

    def _day(self, payment: SentPayment) -> date:
        """Return the day on which a payment was sent; far ahead for one that never was."""
        return payment.sent_at.astimezone(self._zone).date() if payment.sent_at else date.max

    def _fitting(self, one: Match, found: Sequence[SentPayment], by: Key) -> list[SentPayment]:
        """Return the payments that the line may be about, or say of the line why it is about none of them."""
        reached = [self._checked(each, one) for each in found]
        fitting = [each for each, at in zip(found, reached, strict=True) if at == len(_CHECKS)]
        if not fitting:
            nearest = found[reached.index(max(reached))]
            one.set(ReturnVerdict.LISTED, _CHECKS[max(reached)].format(nearest.state.words), nearest)
            return []
        if by != "account" and len(fitting) == 1:
            return fitting
        near = [each for each in fitting if each.is_recurring or one.code.is_within(self._day(each), one.day)]
        if by == "account" and not near:
            one.set(ReturnVerdict.LISTED, "dated too long after it was sent", found[0])
        return near if near or by == "account" else fitting

    def _checked(self, payment: SentPayment, one: Match) -> int:
        """Return how far a payment fits a line: the number of the first of _CHECKS that fails, or of all of them."""
        line = one.line
        if line.cents is None and one.code.kind == FactKind.RETURNED:
            return 0
        if line.cents not in (None, payment.amount_cents):
            return 1
        if line.direction not in (None, payment.direction):
            return 2
        if payment.state not in _SENT:
            return 3
        return 4 if self._day(payment) > one.day else 5

    def _pair(self, matches: Sequence[Match], *, by_account: bool) -> None:
        """Decide about the lines that fit the same payments."""
        payments = [each for each in matches[0].perhaps if (each.batch, each.row) not in self._taken]
        left = []
        for one in matches:
            exact = next((each for each in payments if (one.line.code, one.day) in _returns(each)), None)
            if exact is None:
                left.append(one)
                continue
            one.set(ReturnVerdict.KNOWN, payment=exact)
            payments.remove(exact)
        days = {one.day for one in left}
        free = [each for each in payments if not _returns(each, days)]
        if left and not free:
            for one in left:
                _repeat(one, one.perhaps[0], {code for each in one.perhaps for code, _ in _returns(each)})
            return
        if not by_account and len(free) == 1:
            for one in left[1:]:
                _repeat(one, free[0], {left[0].line.code})
            left = left[:1]
        # A line may be about a payment that came back already, though a little earlier or later.
        known = {found for each in payments for found in _returns(each)}
        may_repeat = any(
            code == one.line.code and abs((one.day - day).days) <= _SAME_DAYS for one in left for code, day in known
        )
        if len(left) != len(free) or may_repeat:
            for one in left:
                one.set(
                    ReturnVerdict.LISTED, f"payments that it may be about: {len(free)}, lines of the file: {len(left)}"
                )
                one.perhaps = free
            return
        if len(free) > 1:
            free.sort(key=lambda each: (self._day(each), each.batch, each.row))
            left.sort(key=lambda one: (one.day, one.line.line))
        for one, each in zip(left, free, strict=True):
            one.set(ReturnVerdict.RECORDED if each.state is State.ACCEPTED else ReturnVerdict.IN_DOUBT, payment=each)
            if not each.is_recurring:
                self._taken.add((each.batch, each.row))

    def _propose(self, matches: Sequence[Match]) -> None:
        """Look for the payments of lines that show the end of an account alone: by amount and name as well."""
        masked: defaultdict[tuple[int, str, str], list[Match]] = defaultdict(list)
        for one in matches:
            line = one.line
            one.set(ReturnVerdict.LISTED, one.why or NOBODY)
            if line.cents and line.last_four and line.name and not (line.routing and line.account):
                masked[line.cents, line.last_four, folded(line.name)].append(one)
        for batch in self._ledger.batches() if masked else ():
            if batch.environment is not self._environment:
                continue
            facts = {fact.row: fact for fact in self._ledger.facts(self._environment, batch=batch.batch)}
            for row in self._ledger.rows(batch.batch, _SENT, {cents for cents, *_ in masked}):
                name = folded(str(row.details.get("name") or ""))
                for one in masked.get((row.amount_cents, row.last_four, name), ()) if row.sent_at else ():
                    payment = SentPayment(
                        batch.batch, row.row, row.line, row.state, row.amount_cents, row.direction, row.sent_at, b"",
                        False, (),
                    )  # fmt: skip
                    if self._fitting(one, [payment], "account"):
                        fact = facts.get(row.row)
                        if fact and not fact.withdrawn and fact.code == one.line.code:
                            one.set(ReturnVerdict.KNOWN, payment=payment)
                        one.perhaps = [*one.perhaps, payment]
        for one in (one for some in masked.values() for one in some if one.verdict is not ReturnVerdict.KNOWN):
            if len(one.perhaps) == 1:
                one.set(ReturnVerdict.PROPOSED, "by the end of the account, amount and name", one.perhaps[0])
            else:
                one.set(ReturnVerdict.LISTED, f"fits {len(one.perhaps)} payments" if one.perhaps else NOBODY)


NOBODY = "no such payment"
_CHECKS = ("no amount", "another amount", "another direction", "its payment is {}", "dated before it was sent")
"""What a line is if the payment that it names does not fit."""
_KEYS: tuple[Key, ...] = ("payment_id", "reference", "invoice", "account")


def _is_set_aside(one: Match, tomorrow: date) -> bool:
    """Whether a line is for a person whatever was paid, which is said."""
    code = return_codes().get(one.line.code)
    if code is None:
        why = f"unknown code {one.line.code}" if one.line.code else "no code"
    elif code.kind not in list(FactKind):
        why = f"{code.code}, {code.meaning}: {code.todo}"
    elif one.line.day is None:
        why = "no date"
    else:
        why = "dated after today" if one.line.day > tomorrow else ""
    if why:
        one.set(ReturnVerdict.LISTED, why)
    return bool(why)


def _returns(payment: SentPayment, days: Collection[date] | None = None) -> set[tuple[str, date]]:
    """Return code and day of each return of a payment; of one that is paid again and again those of some days."""
    every = days is None or not payment.is_recurring
    returns = (fact for fact in payment.facts if fact.kind is FactKind.RETURNED)
    return {(fact.code, fact.day) for fact in returns if every or fact.day in (days or ())}


def _repeat(one: Match, payment: SentPayment, codes: Collection[str]) -> None:
    """Call a line known whose payment came back already; another code may block what that one does not."""
    if one.line.code in codes:
        one.set(ReturnVerdict.KNOWN, payment=payment)
    else:
        one.set(
            ReturnVerdict.LISTED,
            f"came back with {' '.join(sorted(codes))} already, if that is wrong: --withdraw",
            payment,
        )
        one.perhaps = ()


def _note_change(one: Match) -> None:
    """Note a change at the latest payment of its account."""
    if any((fact.code, fact.day) == (one.line.code, one.day) for each in one.perhaps for fact in each.facts):
        one.set(ReturnVerdict.KNOWN, payment=one.perhaps[0])
    elif len({each.account for each in one.perhaps}) > 1:
        one.set(ReturnVerdict.LISTED, "fits payments to several accounts")
    else:
        latest = max(one.perhaps, key=lambda each: (each.sent_at is not None, each.sent_at, each.batch, each.row))
        one.set(ReturnVerdict.RECORDED if latest.state is State.ACCEPTED else ReturnVerdict.IN_DOUBT, payment=latest)
