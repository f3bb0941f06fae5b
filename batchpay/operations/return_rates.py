"""How many of the last weeks' debits came back: the network asks questions of whoever exceeds its rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from batchpay.ledger.contract import Ledger
from batchpay.ledger.facts import RETURNS, FactKind
from batchpay.ledger.records import BatchSummary
from batchpay.payment import Direction, Environment, State, Totals
from batchpay.text import counted

_DAYS = 60
_CODES = {
    **dict.fromkeys(("R05", "R07", "R10", "R11", "R29", "R51"), "unauthorized"),
    **dict.fromkeys(("R02", "R03", "R04"), "administrative"),
}
_PERCENT_MOST = {"unauthorized": 0.5, "administrative": 3.0, "overall": 15.0}
"""The levels of the Nacha Operating Rules, by kind."""


@dataclass(frozen=True, slots=True)
class ReturnRates:
    """What came back of one environment's debits."""

    debits: int = 0
    """Accepted in batches that were sent in these days."""
    returned: Mapping[str, int] = field(default_factory=dict)
    """How many came back in these days, by kind; none where nothing ever did."""

    @property
    def percent(self) -> dict[str, float]:
        """Return percents of the debits by kind; without debits there is no rate."""
        return {name: 100 * rows / self.debits for name, rows in self.returned.items()} if self.debits else {}

    @property
    def exceeded(self) -> list[str]:
        """Name the kinds of which more came back than the network's rules let pass."""
        return [name for name, percent in self.percent.items() if percent > _PERCENT_MOST[name]]

    def __str__(self) -> str:
        """Say all rates: `unauthorized 0.2 % (at most 0.5 %), ...`."""
        rates = [f"{name} {rate:.1f} % (at most {_PERCENT_MOST[name]:g} %)" for name, rate in self.percent.items()]
        return f"came back of {counted(self.debits, 'debit')} in {_DAYS} days: {', '.join(rates)}"


def return_rates(ledger: Ledger, batches: Iterable[BatchSummary], environment: Environment) -> ReturnRates:
    """Return the rates of an environment, of the ledger's `batches`; recurring payments that came back don't count."""
    if ledger.latest_event(RETURNS) is None:
        return ReturnRates()
    since = ledger.now() - timedelta(days=_DAYS)
    debits = sum(
        batch.apart.get(State.ACCEPTED, {}).get(Direction.DEBIT, Totals()).rows
        for batch in batches
        if batch.environment is environment and (batch.finished_at or batch.started_at or batch.registered_at) >= since
    )
    found = Counter(dict.fromkeys(_PERCENT_MOST, 0))
    for fact in ledger.facts(environment, since=since.date()):
        is_one = fact.kind is FactKind.RETURNED and fact.direction == Direction.DEBIT and not fact.is_recurring
        if is_one and not fact.withdrawn:
            found.update({"overall", _CODES.get(fact.code, "overall")})
    return ReturnRates(debits, found)
