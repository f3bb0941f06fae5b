# ruff: noqa: S608 - what is in braces are table names and our own words
"""Every statement about facts: written once for all databases, which differ in how they name tables and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batchpay.ledger.facts import Key

SEALED = (
    "number", "batch", "row", "kind", "code", "day", "amount_cents", "direction", "account", "line", "recurring",
    "unattended", "event", "confirmed", "withdrawn", "lifted",
)  # fmt: skip
"""What a fact's seal covers, in this order."""


class FactStatements:
    """One database's statements; lists of values are parameters that are one JSON array each."""

    def __init__(
        self, *, schema: str, value: str, among: str, own_chain: str, payments_by: Mapping[Key, str], payments: str,
        details: str, returned: str, unlike_rows: str, batches_since: str, count_registration: Sequence[str],
    ) -> None:  # fmt: skip
        """`value` is a parameter of the name in braces; `among` compares with its values, if it is an array.

        `own_chain` is what distinguishes the ledger's own events; `returned` and `unlike_rows` are what is selected
        from. The rest are statements of the database's own.
        """
        fact, batch, read = f"{schema}fact", f"{schema}batch", f"SELECT {', '.join(SEALED)}, seal FROM {schema}fact"

        def is_(*columns: str) -> str:
            return " AND ".join(f"{column} = {value.format(column)}" for column in columns)

        self.payments_by, self.payments, self.details = payments_by, payments, details
        self.batches_since, self.count_registration = batches_since, count_registration
        self.batches = f"SELECT id, name, file FROM {batch} WHERE {is_('environment')}"
        self.environment = f"SELECT environment FROM {batch} WHERE {value.format('batch')} = id"
        self.event = f"SELECT at, who, detail FROM {schema}event WHERE {is_('number')}{own_chain}"
        self.resolved = (
            f"SELECT at, who, why, detail FROM {schema}event WHERE kind = 'resolved' AND kind <> 'progress' AND"
            f" {is_('batch')}"
        )
        self.next_event = f"SELECT coalesce(max(number), 0) + 1 FROM {schema}event WHERE true{own_chain}"
        self.files = f"SELECT detail FROM {schema}event WHERE kind = 'returns' AND kind <> 'progress'"
        self.next_fact = f"SELECT coalesce(max(number), 0) + 1 FROM {fact}"
        of_environment = f"batch IN (SELECT id FROM {batch} WHERE {is_('environment')})"
        self.of_batch = f"{read} WHERE {is_('batch')} ORDER BY number"
        self.of_environment = f"{read} WHERE {of_environment} AND day >= {value.format('since')} ORDER BY number"
        self.of_accounts = (
            f"{read} WHERE account {among.format(value.format('accounts'))} AND {of_environment}"
            " AND withdrawn IS NULL AND lifted IS NULL ORDER BY number"
        )
        self.add = f"INSERT INTO {fact} ({', '.join(SEALED)}, seal, corrected) VALUES ({{}})".format(
            ", ".join(map(value.format, (*SEALED, "seal", "corrected")))
        )
        self.note = f"UPDATE {fact} SET {{0}} = {value.format('event')}, {is_('seal')} WHERE {is_('number')}"
        self.returned = (
            "SELECT direction, count(*), CAST(sum(amount_cents) AS bigint)"
            f" FROM {returned} WHERE {is_('batch')} GROUP BY direction"
        )
        self.every = f"{read.replace(', seal', ', seal, corrected')} ORDER BY number"
        self.events = (
            f"SELECT number, kind, detail FROM {schema}event WHERE kind IN ('returns', 'return confirmed',"
            f" 'return withdrawn', 'released') AND kind <> 'progress'{own_chain}"
        )
        self.unlike_rows = f"SELECT count(*) FROM {unlike_rows}"
        self.erase = f"UPDATE {fact} SET corrected = NULL WHERE {is_('batch')}"
        self.corrected = f"SELECT corrected FROM {fact} WHERE {is_('number')}"
