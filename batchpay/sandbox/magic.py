"""Account endings that make the sandbox answer with something other than success.

An ending is the last six characters of achAccountNumber: `9900` and two digits. Samples and tests choose their ordinary
accounts so that they never end in `9900NN`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """What happens to a payment whose account number has this ending."""

    ending: str
    fault: str
    """Name of a fault (faults.py)."""
    meaning: str
    code: str | None = None
    """Return code of a decline."""
    once: bool = False
    """Only the first time that the very same request arrives."""


RETURN_CODES = {
    "R01": "Insufficient funds",
    "R02": "Account closed",
    "R03": "No account or unable to locate account",
    "R04": "Invalid account number structure",
    "R16": "Account frozen",
    "R20": "Non-transaction account",
    "R29": "Corporate customer advises not authorized",
}
"""Nacha return codes that the sandbox declines with, in Nacha's words."""


def _decline(ending: str, code: str) -> Ending:
    return Ending(ending, "decline", f"declined with {code}: {RETURN_CODES[code].lower()}", code)


ENDINGS = (
    _decline("990001", "R01"),
    _decline("990002", "R02"),
    _decline("990003", "R03"),
    Ending("990004", "silent", "made, then the connection is closed without an answer"),
    Ending("990005", "error_500", "not made; HTTP 500"),
    Ending("990006", "busy", "HTTP 429 the first time, made when it comes again", once=True),
    Ending("990007", "unavailable", "HTTP 503 with Retry-After the first time, made when it comes again", once=True),
    Ending("990008", "reset_before", "not made; the connection is reset"),
    Ending("990009", "reset_after", "made, then the connection is reset"),
    Ending("990010", "truncated", "made; the answer is cut short"),
    Ending("990011", "slow", "made; the answer comes after three seconds"),
    Ending("990012", "error_in_200", "not made; an error inside an HTTP 200"),
    _decline("990014", "R04"),
    _decline("990016", "R16"),
    _decline("990020", "R20"),
    _decline("990029", "R29"),
    Ending("990030", "declined_inside", "accepted, and the same answer says declined"),
    Ending("990031", "other_amount", "accepted, and the same answer names another amount"),
    Ending("990032", "same_reference", "accepted, with the reference of the first payment"),
)

_BY_ENDING = {item.ending: item for item in ENDINGS}


def ending_of(account_number: str) -> Ending | None:
    """Find what an account number asks for; None for an ordinary one."""
    return _BY_ENDING.get(account_number[-6:])


def listing() -> str:
    """Write the table for `--list-magic`: one ending per line, then what it does."""
    return "\n".join(f"{item.ending}  {item.meaning}" for item in ENDINGS)
