"""Whether a ledger is the latest and still in force: when it is opened, and whenever others may have written since."""

from __future__ import annotations

import sqlite3

from batchpay.errors import LedgerBehind, LedgerNotUsable
from batchpay.ledger.paths import LedgerPaths
from batchpay.ledger.records import MOVED
from batchpay.ledger.sqlite import statements as sql
from batchpay.ledger.witness import Witness, WitnessRecord


def require_in_force(
    connection: sqlite3.Connection, latest: str, place: LedgerPaths, ledger_id: str, witness: Witness
) -> None:
    """Raise LedgerNotUsable if an open ledger, whose latest event is of this kind, was moved or restored meanwhile.

    The caller holds the ledger's lock. A write to a restored one would be its witness's next record: after two of them
    nothing would tell anymore that it was restored.
    """
    if latest == MOVED:  # since this process opened it, which would go on here, and others there
        raise LedgerNotUsable(
            f"the ledger {place.ledger} has moved to a database meanwhile; run the command again with the ledger.url "
            "(BATCHPAY_LEDGER) of that one"
        )
    witness.close()  # whoever accepted the ledger meanwhile has replaced it
    if behind := check_witness(connection, ledger_id, witness, witness.read()):
        raise LedgerBehind(behind[0])


def check_witness(
    connection: sqlite3.Connection, ledger_id: str, witness: Witness, testimony: WitnessRecord | None
) -> list[str]:
    """Compare the ledger with what was read from its witness; return what is wrong, if anything."""
    path = witness.path
    way_out = 'a named person who knows why may accept it: batchpay ledger check --accept-witness --reason "…"'
    if testimony is None:
        what = "holds no record of this key" if witness.exists() else "is not there"
        return [f"the ledger's witness {path} {what}, so nobody can tell whether the ledger is the latest; {way_out}"]
    if testimony.ledger_id != ledger_id:
        return [f"the witness {path} belongs to another ledger; {way_out}"]
    found = connection.execute(sql.MAC_OF_EVENT, (testimony.number,)).fetchone()
    if found is None or found[0] != testimony.mac:
        return [
            f"the ledger is older than its witness {path}: most likely it was brought back from a backup, and does not "
            f"know what was sent since; nothing was sent now; {way_out}"
        ]
    return []
