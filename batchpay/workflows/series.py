"""Files that are numbered: a number is used once, and one that has not come is asked for before later ones are paid."""

from __future__ import annotations

from batchpay.errors import FileRefused, WaitingForPerson
from batchpay.ledger.contract import Ledger
from batchpay.payment import Environment
from batchpay.text import printable


def require_in_turn(
    ledger: Ledger, file: str, series: tuple[str, int] | None, digest: bytes, environment: Environment, *, gap: bool
) -> None:
    """Raise FileRefused if a file's number was used for another content, WaitingForPerson if one before it is missing.

    `gap` says that a person knows that it is.
    """
    if series is None:
        return
    name, number = series
    known = ledger.numbers_of(name, environment)
    if (batch := known.used_for(number, digest)) is not None:
        raise FileRefused(
            f"{printable(file)}: number {number} of series {printable(name)} was used for other payments, in batch "
            f"{batch}; nothing was sent. If this file is due as well, it needs a number of its own"
        )
    if (missing := known.first_missing(number)) is not None and not gap:
        raise WaitingForPerson(
            f"{printable(file)} is number {number} of series {printable(name)}, and number {missing} has not come; "
            "nothing was sent. If it will not come: --gap --reason TEXT"
        )
