# ruff: noqa: S608 - what is in braces are state codes and table names, our own words
"""Every statement that the SQLite ledger runs, by name, grouped by table.

All except what creates the schema (the numbered .sql files next to this one). Values are always parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from batchpay.ledger.columns import CANCELLED
from batchpay.ledger.event_chain import DAY_MS, EPOCH_DAY
from batchpay.ledger.moving import TABLES
from batchpay.ledger.states import ACCEPTED, DECLINED, IN_DOUBT, OPEN, PENDING, REJECTED, SENDING
from batchpay.payment import SamePayment as Same

_OPEN = ", ".join(map(str, OPEN))
_IDS = "IN (SELECT value FROM json_each(?))"
_PLACE = "{0}.id >> 32, {0}.id & 4294967295"
"""A row's batch and number."""

# The ledger itself

META = "SELECT name, value FROM meta"
ADD_META = "INSERT INTO meta VALUES (?, ?)"
SET_META = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
META_VALUE = "SELECT value FROM meta WHERE name = ?"
DIGESTS_BEGUN = "SELECT digest FROM batch WHERE token IS NOT NULL AND environment = ? AND origin = ?"
PROBE = "UPDATE meta SET value = ? WHERE name = 'probe'"
KEEP_CLOCK_MARK = "INSERT INTO meta VALUES ('clock', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
KEEP_LITTLE, KEEP_SOME, KEEP_MUCH = (f"PRAGMA cache_size = -{kib}" for kib in (512, 8192, 65_536))
"""How much of the ledger a connection keeps in memory, in KiB.

Some by default: rows are registered and looked up in the order of their tables, so that more is only fresh memory.
Little in a run, which writes each group near the one before: in a commit that split a page, as most of a run's do,
SQLite looks through every page that it keeps. Much where the whole ledger is checked, by indexes in any order.
"""

# History

ADD_EVENT = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
EVENTS = "SELECT number, at, batch, kind, who, why, detail, mac FROM event"
EVENTS_FROM = f"{EVENTS} WHERE number >= ? ORDER BY number"
_NAMED_EVENT = (
    "SELECT number, at, batch.name, kind, who, why, detail FROM event LEFT JOIN batch ON batch.id = event.batch"
)
NAMED_EVENTS = f"{_NAMED_EVENT} WHERE :batch IS NULL OR event.batch = :batch ORDER BY number"
LATEST_EVENT = f"{_NAMED_EVENT} WHERE kind = ? AND kind <> 'progress' ORDER BY number DESC LIMIT 1"
MAC_OF_EVENT = "SELECT mac FROM event WHERE number = ?"
CHAIN_HEAD = "SELECT number, mac, kind FROM event ORDER BY number DESC LIMIT 1"
LAST_EVENT = "SELECT number, at FROM event ORDER BY number DESC LIMIT 1"
LAST_OF_KINDS = (
    "SELECT kind, detail FROM event WHERE kind IN (?, ?) AND kind <> 'progress' ORDER BY number DESC LIMIT 1"
)
LAST_EVENT_OF_BATCH = "SELECT max(at) FROM event WHERE batch = ? AND kind <> 'progress'"
LAST_PROGRESS_OF_BATCH = (
    "SELECT max(at) FROM (SELECT at FROM event WHERE batch = ?1 AND kind <> 'progress'"
    " AND kind NOT IN ('started', 'finished', 'gateway moved') UNION ALL SELECT finished_at FROM attempt"
    f" WHERE id >= ?1 << 32 AND id < ?1 + 1 << 32 AND state <> {PENDING})"
)
_IS_DEED = (
    "kind <> 'progress' AND kind NOT IN ('gateway moved', 'purged')"
    # Start and end of a run that had nothing to do are adjacent: a file that is submitted each night still grows stale.
    " AND NOT (kind = 'started' AND EXISTS (SELECT 1 FROM event AS next WHERE next.number = event.number + 1"
    " AND next.kind = 'finished' AND next.batch = event.batch))"
    " AND NOT (kind = 'finished' AND EXISTS (SELECT 1 FROM event AS before WHERE before.number = event.number - 1"
    " AND before.kind = 'started' AND before.batch = event.batch))"
)
LAST_DEED_ON_BATCH = f"SELECT max(at) FROM event WHERE batch = ? AND {_IS_DEED}"
PURGED_AT = "SELECT max(at) FROM event WHERE kind = 'purged' AND kind <> 'progress' AND batch = ?"
LAST_NUMBER_OF_KIND = "SELECT coalesce(max(number), 0) FROM event WHERE kind = ? AND kind <> 'progress'"
REGISTRATION = "SELECT number FROM event WHERE kind = 'registered' AND kind <> 'progress' AND batch = ?"
_WITH_MAC_BEFORE = " LEFT JOIN event AS before ON before.number = event.number - 1"
_IS_REGISTRATION = "event.kind IN ('registered', 'released') AND event.kind <> 'progress'"
_MACS_AND_EVENT = (
    "before.mac, event.mac, event.number, event.at, event.batch, event.kind, event.who, event.why, event.detail"
)
REGISTRATIONS = (
    f"SELECT batch.name, batch.digest, batch.environment, {_MACS_AND_EVENT}"
    f" FROM event LEFT JOIN batch ON batch.id = event.batch{_WITH_MAC_BEFORE}"
    f" WHERE {_IS_REGISTRATION} ORDER BY event.number"
)
LAST_REGISTRATION = (
    f"SELECT {_MACS_AND_EVENT} FROM event{_WITH_MAC_BEFORE}"
    f" WHERE event.number = (SELECT max(number) FROM event WHERE {_IS_REGISTRATION})"
)
ALL_REGISTERED = (
    "SELECT coalesce(group_concat(id || ' ' || name || ' ' || hex(digest) || ' ' || environment), '')"
    " FROM (SELECT id, name, digest, environment FROM batch ORDER BY id)"
)
REGISTRATION_COUNT = (
    "SELECT (SELECT count(*) FROM batch) + (SELECT count(*) FROM event"
    " WHERE kind IN ('released', 'return withdrawn') AND kind <> 'progress')"
)
REGISTERED_SINCE = (
    "SELECT DISTINCT batch FROM (SELECT batch FROM event WHERE kind IN ('registered', 'released', 'return withdrawn')"
    " AND kind <> 'progress' ORDER BY number LIMIT -1 OFFSET ?)"
)
DIGESTS_OF_BATCHES = "SELECT digest FROM batch WHERE id IN (SELECT value FROM json_each(?))"
_SHARED_WITH = (
    "SELECT EXISTS (SELECT 1 FROM json_each(?) AS mine CROSS JOIN {0} ON {0}.{0} = mine.value"
    " WHERE {0}.id >> 32 IN (SELECT value FROM json_each(?)))"
)
BILLS_SHARED_WITH, PAYMENT_IDS_SHARED_WITH = map(_SHARED_WITH.format, ("fingerprint", "payment_id"))
PLANS_USED = (
    "SELECT batch.name, detail FROM event JOIN batch ON batch.id = event.batch WHERE kind = ? AND kind <> 'progress'"
)
ADDED_SINCE = (
    "SELECT detail FROM event JOIN batch ON batch.id = event.batch WHERE kind IN ('registered', 'released')"
    " AND kind <> 'progress' AND event.at >= :since AND environment = :environment"
)
EVENTS_OF_KINDS = (
    "SELECT kind, detail FROM event WHERE batch = ? AND kind IN (?, ?, ?) AND kind <> 'progress' ORDER BY number"
)

# Batches and runs

BATCH = (
    "SELECT batch.id, name, digest, file, origin, environment, columns, registered_at, row_count, cents, again_reason,"
    " options, run.started_at, run.finished_at, run.stopped,"
    " (SELECT detail FROM event WHERE kind = 'finished' AND kind <> 'progress' AND event.batch = batch.id"
    " ORDER BY number DESC LIMIT 1),"
    " (SELECT max(at) FROM event WHERE kind = 'purged' AND kind <> 'progress' AND event.batch = batch.id)"
    " FROM batch LEFT JOIN run ON run.id = (SELECT max(id) FROM run WHERE run.batch = batch.id)"
)
BATCHES = f"{BATCH} ORDER BY batch.id DESC"
BATCHES_OF_DIGEST = (
    "SELECT name, again_reason FROM batch WHERE digest = :digest AND environment = :environment ORDER BY id DESC"
)
BATCHES_OF_FILE = f"{BATCH} WHERE environment = :environment AND instr(options, :file_digest) ORDER BY batch.id DESC"
LATEST_BATCH = f"{BATCH} WHERE environment = coalesce(:environment, environment) ORDER BY batch.id DESC LIMIT 1"
BATCH_NAMED = f"{BATCH} WHERE name = ?"
BATCHES_BEGINNING = f"{BATCH} WHERE substr(name, 1, length(?1)) = ?1 LIMIT 2"
BATCH_BY_NAME = "SELECT id, digest FROM batch WHERE name = ?"
BATCH_IDS = "SELECT id FROM batch ORDER BY id"
BATCH_NAMES = "SELECT id, name FROM batch WHERE environment = ?"
REFERENCES = f"SELECT {_PLACE.format('attempt')}, gateway_reference FROM attempt WHERE gateway_reference IS NOT NULL"
_ENVIRONMENT = "(SELECT environment FROM batch WHERE id = {})"
ROWS_WITH_REFERENCES = (
    "SELECT mine.value, other >> 32, other & 4294967295 FROM (SELECT value, (SELECT id FROM attempt"
    " WHERE gateway_reference = key AND id <> (:batch << 32 | value)"
    f" AND {_ENVIRONMENT.format('attempt.id >> 32')} = {_ENVIRONMENT.format(':batch')} LIMIT 1) AS other"
    " FROM json_each(:references)) AS mine WHERE other IS NOT NULL"
)
"""For rows of a batch by reference, batch and number of another row of the environment that has the reference too."""
ORIGINS = "SELECT origin FROM batch WHERE environment = ? GROUP BY origin ORDER BY max(id)"
ORIGIN_OF_BATCH = "SELECT id, origin FROM batch WHERE name = ?"
MOVE_BATCH = "UPDATE batch SET origin = ? WHERE id = ?"
COUNT_BATCHES = "SELECT count(*) FROM batch WHERE environment = ?"
NAMES_LIKE = "SELECT name FROM batch WHERE name GLOB ? || '*'"
ADD_BATCH = (
    "INSERT INTO batch (name, digest, file, origin, columns, options, registered_at, again_reason, environment,"
    " row_count, cents) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0) RETURNING id"
)
SET_CONTROL_TOTALS = "UPDATE batch SET row_count = ?, cents = ? WHERE id = ?"
TAKE_BATCH = "UPDATE batch SET token = ? WHERE id = ?"
LEAVE_BATCH = "UPDATE batch SET token = NULL WHERE id = ?"
HOLDER_OF_BATCH = "SELECT token FROM batch WHERE id = ?"
ADD_RUN = "INSERT INTO run (batch, who, started_at) VALUES (?, ?, ?)"
END_RUN = "UPDATE run SET finished_at = ?, stopped = ? WHERE id = ?"

# Control totals

TOTALS = "SELECT state, direction, row_count, cents FROM total WHERE batch = ?"
ADD_TO_TOTAL = (
    "UPDATE total SET row_count = row_count + ?, cents = cents + ? WHERE batch = ? AND state = ? AND direction = ?"
)
ADD_TOTAL = "INSERT INTO total VALUES (?, ?, ?, ?, ?)"

# Rows

ADD_PENDING_ROWS = "INSERT INTO row (id, line, amount_cents, direction, chunk, payee, account, state) VALUES"
ADD_PENDING_ROWS_WITH_DAYS = ADD_PENDING_ROWS.replace("state)", "state, pay_on)")
ADD_REJECTED_ROW = (
    f"INSERT INTO row (id, line, amount_cents, direction, state, reasons, seal) VALUES (?, ?, ?, 0, {REJECTED}, ?, ?)"
)
REJECTED_ROW = "SELECT direction FROM row WHERE id = ? AND state = ? AND amount_cents = ?"
RELEASE_ROW = (
    "UPDATE row SET state = ?, reasons = NULL, seal = NULL, direction = ?, chunk = ?, payee = ?, account = ?,"
    " pay_on = ? WHERE id = ? AND state = ?"
)
REJECTED_ROWS = (
    "SELECT id & 4294967295, line, amount_cents, reasons FROM row"
    f" WHERE id >= ?1 << 32 AND id < ?1 + 1 << 32 AND state = {REJECTED} ORDER BY id"
)
REJECTED_FACTS = "SELECT line, amount_cents FROM row WHERE id = ?"
_IS_DUE = "(pay_on IS NULL OR pay_on <= ?)"
PENDING_ROWS = (
    "SELECT json_group_array(id & 4294967295), json_group_array(attempts), json_group_array(chunk),"
    " json_group_array(amount_cents), json_group_array(direction), json_group_array(account) FROM"
    " (SELECT id, attempts, chunk, amount_cents, direction, CASE WHEN ? THEN hex(account) END AS account FROM row"
    f" WHERE id > ? AND id < ? AND state = {PENDING} AND {_IS_DUE} ORDER BY id LIMIT ?)"
)
"""One JSON array per column: Python reads many values from one text in less time than it takes to fetch them."""
_HAS_DAY = f"state = {PENDING} AND pay_on IS NOT NULL"
DAYS = (
    "SELECT pay_on, direction, count(*), sum(amount_cents) FROM row"
    f" WHERE id >> 32 = ? AND {_HAS_DAY} GROUP BY pay_on, direction"
)
CHUNKS_WITH_DAYS = f"SELECT DISTINCT id >> 32, chunk FROM row INDEXED BY row_scheduled WHERE {_HAS_DAY}"
PENDING_DAYS_OF_CHUNK = (
    "SELECT id & 4294967295, pay_on FROM row WHERE id BETWEEN :batch << 32 | :first AND :batch << 32 | :last"
    f" AND chunk = :chunk AND state = {PENDING}"
)
ROW_IS_PENDING = f"SELECT 1 FROM row WHERE id = ? AND state = {PENDING}"
ROW_IN_ATTEMPT = (
    "SELECT attempts, sent_at, chunk, amount_cents, direction FROM row LEFT JOIN attempt ON attempt.id = row.id"
    " WHERE row.id = ? AND row.state = ? AND attempts = ?"
)
STANDING_OF_ROW = "SELECT state, attempts FROM row WHERE id = ?"
MOVE_ROW = (
    "UPDATE row SET state = ?, reasons = ?, seal = ? WHERE id = ? AND state = ?"
    " RETURNING amount_cents, direction, chunk"
)

# Groups of rows in flight. Each row fetched, and each statement, releases Python's lock, which a thread that sends may
# then keep: so a whole group is written with few statements. Its rows are a range of ids, or a list.

Ids = Literal["range", "list"]
_WHICH: Mapping[Ids, str] = {"range": "BETWEEN ? AND ?", "list": _IDS}

GRANTABLE = (
    f"SELECT id & 4294967295, attempts, chunk, amount_cents, direction FROM row WHERE id {_IDS} AND state = {PENDING}"
    f" AND NOT EXISTS (SELECT 1 FROM attempt WHERE attempt.id = row.id AND attempt.state <> {PENDING})"
)
GRANT = {
    ids: f"UPDATE row SET state = {SENDING}, attempts = attempts + 1 WHERE id {which} AND state = {PENDING}"
    for ids, which in _WHICH.items()
}
BEGIN_ATTEMPTS = {
    ids: f"INSERT INTO attempt (id, state, sent_at, sent_on) SELECT id, {SENDING}, ?, ? FROM row WHERE id {which}"
    f" ON CONFLICT (id) DO UPDATE SET state = {SENDING},"
    " sent_at = excluded.sent_at, sent_on = excluded.sent_on, finished_at = NULL, http_status = NULL,"
    " response_code = NULL, message = NULL, gateway_reference = NULL, reason = NULL, seal = NULL"
    f" WHERE attempt.state = {PENDING}"
    for ids, which in _WHICH.items()
}
COUNT_GRANTED = {
    ids: f"INSERT INTO payee_day SELECT ?, ?, account, amount_cents FROM row WHERE id {which}"
    " ON CONFLICT (environment, day, account) DO UPDATE SET cents = cents + excluded.cents"
    for ids, which in _WHICH.items()
}
END_SENDING = {
    ids: f"UPDATE row {'NOT INDEXED' if ids == 'range' else ''} SET state = ?, reasons = NULL, seal = NULL"
    f" WHERE id {which} AND state = {SENDING}"
    for ids, which in _WHICH.items()
}
"""Using the index on rows in sending would cost more than reading these rows: the statement changes that index."""
END_ATTEMPT = (
    "UPDATE attempt SET state = ?, finished_at = ?, http_status = ?, response_code = ?, message = ?,"
    f" gateway_reference = ?, reason = ?, seal = ? WHERE id = ? AND state = {SENDING}"
)

# Sums of a day

ADD_TO_DAY = (
    "INSERT INTO day_total VALUES (?, ?, ?, ?)"
    " ON CONFLICT (environment, day, direction) DO UPDATE SET cents = cents + excluded.cents"
)
_WANTED = "json_each(:rows) AS wanted CROSS JOIN row ON row.id = (:batch << 32 | wanted.value)"
_COUNTED_ROWS = (
    f"FROM {_WANTED} JOIN attempt ON attempt.id = row.id JOIN batch ON batch.id = :batch WHERE sent_on IS NOT NULL"
)
COUNT_ON_DAYS = [
    f"INSERT INTO {table} SELECT environment, sent_on, {key}, :sign * sum(amount_cents) {_COUNTED_ROWS}"
    f" GROUP BY sent_on, {key} ON CONFLICT (environment, day, {key}) DO UPDATE SET cents = cents + excluded.cents"
    for table, key in (("day_total", "direction"), ("payee_day", "account"))
]
_, COUNT_ON_PAYEE_DAY = COUNT_ON_DAYS
DOUBT_TODAY = "UPDATE attempt SET sent_on = :day WHERE id IN (SELECT :batch << 32 | value FROM json_each(:rows))"
DROP_DAYS = "DELETE FROM payee_day WHERE day < ?"
_SENT = (
    "SELECT environment, sent_on, direction, sum(amount_cents) AS cents FROM attempt JOIN row ON row.id = attempt.id"
    " JOIN batch ON batch.id = row.id >> 32 WHERE sent_on IS NOT NULL"
    f" AND row.state IN ({SENDING}, {ACCEPTED}, {IN_DOUBT}) GROUP BY environment, sent_on, direction HAVING cents <> 0"
)
_KEPT = "SELECT environment, day, direction, cents FROM day_total WHERE cents <> 0"
DAYS_UNLIKE_ROWS = (
    f"WITH sent AS ({_SENT}), kept AS ({_KEPT}) SELECT DISTINCT sent_on FROM"
    " (SELECT * FROM (SELECT * FROM sent EXCEPT SELECT * FROM kept)"
    " UNION ALL SELECT * FROM (SELECT * FROM kept EXCEPT SELECT * FROM sent)) ORDER BY 1"
)
ROWS_TO_FIT = f"SELECT wanted.value, amount_cents, direction, account FROM {_WANTED} ORDER BY wanted.value"
SENT_BY_DIRECTION = "SELECT direction, cents FROM day_total WHERE environment = :environment AND day = :day"
SENT_BY_ACCOUNT = (
    f"SELECT DISTINCT known.account, cents FROM {_WANTED} JOIN payee_day AS known"
    " ON known.environment = :environment AND known.day = :day AND known.account = row.account"
)
_OTHERS = "environment = :environment AND batch.id <> :batch"
_SCHEDULED = f"row INDEXED BY row_scheduled ON row.id >> 32 = batch.id AND row.state = {PENDING} AND pay_on"
PLANNED_BY_DIRECTION = (
    "SELECT day, direction, cents FROM day_total WHERE environment = :environment AND day >= :today"
    " UNION ALL SELECT :today, direction, total.cents FROM batch JOIN total ON total.batch = batch.id"
    f" AND state = {PENDING} WHERE {_OTHERS} AND registered_at >= :begins"
    " UNION ALL SELECT iif(column1 = 1, pay_on, :today), direction, column1 * amount_cents FROM batch"
    f" CROSS JOIN {_SCHEDULED} >= :today CROSS JOIN (VALUES (1), (-1))"
    f" WHERE {_OTHERS} AND (column1 = 1 OR registered_at >= :begins)"
)
"""What was sent, what is due, and what was registered today without a later day."""
PLANNED_BY_ACCOUNT = (
    "SELECT day, account, cents FROM payee_day WHERE environment = :environment AND day >= :today"
    " UNION ALL SELECT max(:today, coalesce(pay_on, 0)), account, amount_cents FROM batch CROSS JOIN row"
    f" ON row.id >= batch.id << 32 AND row.id < batch.id + 1 << 32 AND row.state = {PENDING}"
    f" WHERE {_OTHERS} AND registered_at >= :begins"
    f" UNION ALL SELECT pay_on, account, amount_cents FROM batch CROSS JOIN {_SCHEDULED} >= :today WHERE {_OTHERS}"
    " AND registered_at < :begins"
)

# Single attempts

ATTEMPT = (
    "SELECT sent_at, finished_at, http_status, response_code, message, gateway_reference FROM attempt WHERE id = ?"
)
NOTE_ATTEMPT = (
    "INSERT INTO attempt (id, state, finished_at, http_status, response_code, message, gateway_reference,"
    " reason, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state,"
    " finished_at = excluded.finished_at, gateway_reference = excluded.gateway_reference,"
    " reason = excluded.reason, seal = excluded.seal"
)
ATTEMPT_NOT_PENDING = f"SELECT 1 FROM attempt WHERE id = ? AND state <> {PENDING}"

# Payloads

NEXT_CHUNK = "SELECT coalesce(max(id), 0) + 1 FROM chunk"
ADD_CHUNK = "INSERT INTO chunk VALUES (?, ?, ?)"
CLOSE_ROWS = "UPDATE chunk SET open_rows = open_rows - :rows WHERE id = :chunk RETURNING open_rows"
ADD_BODY = "INSERT INTO body VALUES (?, ?)"
BODY = "SELECT sealed FROM body WHERE chunk = ?"
ERASE_BODY = "DELETE FROM body WHERE chunk = :chunk"
ADD_DETAIL = "INSERT INTO detail VALUES (?, ?)"
DETAIL = "SELECT sealed FROM detail WHERE chunk = :chunk"
_PAYLOADS = "SELECT chunk.batch, chunk.id, {0}.sealed FROM {0} JOIN chunk ON chunk.id = {0}.chunk"
BODIES, DETAILS = map(_PAYLOADS.format, ("body", "detail"))

# What a purge erases

OLD_BATCHES = (
    "SELECT batch.name, deed.at, (SELECT count(*) FROM row WHERE row.id >= batch.id << 32"
    " AND row.id < batch.id + 1 << 32 AND chunk IS NOT NULL)"
    f" FROM batch JOIN (SELECT batch, max(at) AS at FROM event INDEXED BY event_seldom WHERE {_IS_DEED}"
    " GROUP BY batch) AS deed ON deed.batch = batch.id"
    " WHERE deed.at < ? AND NOT EXISTS (SELECT 1 FROM event WHERE kind = 'purged' AND kind <> 'progress'"
    " AND event.batch = batch.id) ORDER BY batch.id"
)
OPEN_ROWS = f"SELECT coalesce(sum(row_count), 0) FROM total WHERE batch = ? AND state IN ({_OPEN})"
ROWS_WITH_DETAILS = "SELECT count(*) FROM row WHERE id >= ?1 << 32 AND id < ?1 + 1 << 32 AND chunk IS NOT NULL"
DETAILS_OF_BATCH = (
    "SELECT sealed FROM detail WHERE chunk IN (SELECT id FROM chunk WHERE batch = ?1)"
    " UNION ALL SELECT corrected FROM fact WHERE batch = ?1 AND corrected IS NOT NULL"
)
ERASE_DETAILS = "DELETE FROM detail WHERE chunk IN (SELECT id FROM chunk WHERE batch = ?)"
TEXTS_OF_ATTEMPTS = (
    "SELECT message, reason, id, sent_at, state, finished_at, http_status, response_code, gateway_reference"
    " FROM attempt WHERE id >= ? AND id < ? AND (message IS NOT NULL OR reason IS NOT NULL) ORDER BY id LIMIT ?"
)
ERASE_TEXTS = "UPDATE attempt SET message = NULL, reason = NULL, seal = ? WHERE id = ?"
TEXT_STANDS = (
    "SELECT EXISTS (SELECT 1 FROM attempt WHERE"
    " instr(message, ?1) OR instr(reason, ?1) OR instr(gateway_reference, ?1) OR instr(response_code, ?1))"
    " OR EXISTS (SELECT 1 FROM event WHERE instr(who, ?1) OR instr(why, ?1) OR instr(detail, ?1))"
    " OR EXISTS (SELECT 1 FROM batch WHERE instr(file, ?1) OR instr(columns, ?1) OR instr(options, ?1))"
    " OR EXISTS (SELECT 1 FROM run WHERE instr(stopped, ?1))"
)

# Digests of payments and payees

ADD_FINGERPRINTS = "INSERT OR IGNORE INTO fingerprint VALUES"
ADD_PAYMENT_IDS = "INSERT OR IGNORE INTO payment_id VALUES"
REMEMBER_PAYEES = f"""
INSERT INTO paid (payee, account, batch, row_count, cents)
SELECT payee, account, ?1, count(*), sum(amount_cents) FROM row
WHERE id >= ?1 << 32 AND id < ?1 + 1 << 32 AND state = {ACCEPTED} AND payee IS NOT NULL AND account IS NOT NULL
GROUP BY payee, account
ON CONFLICT (payee, account, batch) DO UPDATE SET row_count = excluded.row_count, cents = excluded.cents
"""
MAKE_WANTED_PAYEES = "CREATE TEMP TABLE wanted (payee BLOB)"
ADD_WANTED_PAYEE = "INSERT INTO wanted VALUES (?)"
RETURNED = "fact WHERE kind = 1 AND recurring = 0 AND withdrawn IS NULL"
"""What came back and is no payment any more. No view, for which `PRAGMA integrity_check` passes over free pages."""
_BACK = (
    f"FROM (SELECT * FROM {RETURNED}) AS r JOIN row ON row.id = (r.batch << 32 | r.row)"
    " WHERE r.account = hex(paid.account) AND row.payee = paid.payee AND +r.batch"
)
_OTHERS = "IN (SELECT id FROM batch WHERE environment = ?1 AND digest <> ?2)"
PAID_TO_WANTED = (
    f"SELECT payee, account, row_count - (SELECT count(*) {_BACK} {{0}}) AS row_count,"
    f" cents - (SELECT coalesce(sum(r.amount_cents), 0) {_BACK} {{0}}) AS cents, first FROM (SELECT payee, account,"
    " sum(paid.row_count) AS row_count, sum(paid.cents) AS cents, min(registered_at) AS first FROM wanted"
    " CROSS JOIN paid USING (payee) CROSS JOIN batch ON batch.id = paid.batch AND environment = ?1 AND digest <> ?2"
    " GROUP BY payee, account) AS paid"
).format(_OTHERS)
LATEST_OF_WANTED = (
    f"SELECT payee, max(batch) FROM wanted CROSS JOIN paid USING (payee) WHERE batch {_OTHERS}"
    f" AND row_count > (SELECT count(*) {_BACK} = paid.batch) GROUP BY payee"
)
LAST_PAID_IN = (
    f"SELECT payee, max(id), chunk FROM row WHERE id >= ? AND id < ? AND state = {ACCEPTED}"
    " AND payee IN (SELECT payee FROM wanted) AND NOT EXISTS (SELECT 1"
    f" FROM {RETURNED} AND fact.batch = row.id >> 32 AND fact.row = row.id & 4294967295) GROUP BY payee"
)

# Payments that an earlier batch has

_COUNTED = f"{_OPEN}, {ACCEPTED}"
RANK_BITS = 59
"""Above a row's id stands what it is found by: twice its SamePayment, and 1 if it was not cancelled."""

_COMPARED = "(? = '' AND batch.digest <> ? OR batch.name = ?) AND batch.environment = ?"
COMPARED_BATCHES = f"SELECT id, name, file FROM batch WHERE {_COMPARED}"
HAS_OLDER_DIGESTS = "SELECT 1 FROM meta WHERE name = 'latest batch of version 2'"
MAKE_WANTED_KEYS = (
    "CREATE TEMP TABLE wanted (key INTEGER, row INTEGER, named INTEGER, invoiced INTEGER, pay_on INTEGER)"
)
CLEAR_WANTED_KEYS = "DELETE FROM wanted"
ADD_WANTED_KEY = "INSERT INTO wanted VALUES (?, ?, ?, ?, ?)"
SENT_SINCE = (
    "batch.environment = :environment AND (batch.registered_at >= :since OR EXISTS"
    " (SELECT 1 FROM run WHERE run.batch = batch.id AND (finished_at IS NULL OR finished_at >= :since)))"
)
_SINCE = f"{SENT_SINCE} AND batch.digest <> :digest"
BATCH_SINCE = f"SELECT 1 FROM batch WHERE {_SINCE} LIMIT 1"
_KNOWN = "SELECT value FROM json_each(?) AS wanted WHERE EXISTS (SELECT 1 FROM {0} WHERE {0} = wanted.value)"
KNOWN_BILLS, KNOWN_PAYMENT_IDS = map(_KNOWN.format, ("fingerprint", "payment_id"))
_FOUND = f"""
JOIN row ON row.id = found.id AND (row.state IN ({_COUNTED}){{}} OR row.state = {DECLINED} AND EXISTS
    (SELECT 1 FROM event WHERE kind = 'resolved' AND kind <> 'progress' AND event.batch = row.id >> 32))
JOIN batch ON batch.id = found.id >> 32 AND {_COMPARED}
LEFT JOIN attempt ON attempt.id = found.id
GROUP BY wanted.row
"""
# A payment counts from the later of its registration and its latest attempt: a batch may wait for days to be sent.
_AT = "max(batch.registered_at, coalesce(attempt.sent_at, 0))"
# One that is not settled is not days ago, but still to come: whatever repeats it would be paid beside it. Where a row
# has a day of its own, days are counted between days, in both directions.
_IS_SCHEDULED = f"(row.pay_on IS NOT NULL AND row.state IN ({_OPEN}) AND {{days}} > 0)"
_IS_BILL = f"""CASE
    WHEN {{in_file}} THEN NOT (wanted.named AND found.named)
        AND coalesce(abs(wanted.pay_on - row.pay_on) < {{apart}}, TRUE)
    WHEN wanted.invoiced AND NOT (wanted.named AND found.named) THEN TRUE
    WHEN row.pay_on IS NULL AND row.state IN ({_OPEN}) THEN {{days}} > 0
    WHEN row.pay_on IS NULL AND wanted.pay_on IS NULL THEN {_AT} >= {{since}}
    ELSE abs(coalesce(wanted.pay_on, {{today}}) - coalesce(row.pay_on, ({_AT} + {{offset}}) / {DAY_MS} + {EPOCH_DAY}))
        < iif(wanted.pay_on IS NULL, {{days}}, {{apart}})
    END"""
PAID_TO_ACCOUNTS = f"""
SELECT batch.id, batch.name, batch.file, row.id & 4294967295, row.chunk, row.line, row.account, row.direction,
    row.amount_cents, {_AT}
FROM batch CROSS JOIN row ON row.id >= batch.id << 32 AND row.id < (batch.id + 1) << 32
    AND row.state IN ({ACCEPTED}, {SENDING}, {IN_DOUBT})
    AND hex(row.account) IN (SELECT value FROM json_each(:accounts))
LEFT JOIN attempt ON attempt.id = row.id
WHERE {_SINCE} AND {_AT} >= :since ORDER BY batch.id, row.id
"""
EARLIER_BY_PAYMENT_ID = f"""
SELECT wanted.row, max((iif(row.state = {DECLINED}, {Same.DECLINED:d}, {Same.PAYMENT_ID:d}) * 2 + 1) << {RANK_BITS}
    | found.id), row.line, {_AT}
FROM wanted CROSS JOIN payment_id AS found ON found.payment_id = wanted.key {_FOUND.format("")}
"""
_OR_CANCELLED = f" OR row.reasons = '{CANCELLED}' AND NOT {{in_file}}"
EARLIER_BY_BILL = f"""
SELECT wanted.row, max((CASE
    WHEN row.state = {DECLINED} THEN {Same.DECLINED:d} * (wanted.named AND found.named OR {_IS_BILL})
    WHEN {_IS_BILL} THEN {Same.BILL:d}
    WHEN wanted.named AND found.named OR {_IS_SCHEDULED} THEN {Same.ANOTHER_ID:d} ELSE 0
    END * 2 + (row.state <> {REJECTED})) << {RANK_BITS} | found.id),
    row.line, {_AT}
FROM wanted CROSS JOIN fingerprint AS found ON found.fingerprint = wanted.key
{_FOUND.format(_OR_CANCELLED)}
"""


# One batch compared with its history

ROWS_OF_BATCH = (
    "SELECT coalesce(sum(line), 0), coalesce(sum((id - ?1) * line), 0), json_group_array(id & 4294967295),"
    " json_group_array(amount_cents), group_concat(direction, ''), group_concat(state, '') FROM row"
    " WHERE id >= ?1 AND id < ?2"
)
"""A few thousand rows. The sum of their lines, and of lines times rows counted from the first, so that no sum
overflows; columns as in PENDING_ROWS, or for what has one digit only the digits."""
BATCH_AS_REGISTERED = (
    "SELECT name, digest, row_count, cents, file, origin, columns, options, registered_at, again_reason,"
    " environment FROM batch WHERE id = ?"
)
TOTALS_OF_BATCH = (
    "SELECT state, direction, row_count, cents FROM total WHERE batch = ? AND (row_count <> 0 OR cents <> 0)"
)
ROWS_UNLIKE_ATTEMPTS = (
    "SELECT count(*) FROM row LEFT JOIN attempt ON attempt.id = row.id WHERE row.id >= ? AND row.id < ?"
    f" AND row.state <> {REJECTED} AND coalesce(attempt.state, {PENDING}) <> row.state"
)
ATTEMPTS_IN_STATE = (
    "SELECT id, sent_at, state, finished_at, http_status, response_code, message, gateway_reference, reason, seal"
    " FROM attempt WHERE id >= ? AND id < ? AND state = ?"
)
ENDED_ATTEMPTS = ATTEMPTS_IN_STATE.replace("state = ?", "state <> ?")
REJECTED_WITH_SEALS = "SELECT id, line, amount_cents, reasons, seal FROM row WHERE id >= ? AND id < ? AND state = ?"

# The check of the whole ledger

ALL_RUNS = f"SELECT {TABLES['run']} FROM run"
ALL_TOTALS = f"SELECT {TABLES['total']} FROM total WHERE row_count <> 0 OR cents <> 0"
LOST_ROWS = "SELECT count(*) FROM row WHERE NOT EXISTS (SELECT 1 FROM batch WHERE batch.id = row.id >> 32)"
BATCHES_OUT_OF_TOTALS = (
    "SELECT name FROM batch LEFT JOIN total ON total.batch = batch.id GROUP BY batch.id"
    " HAVING batch.row_count <> coalesce(sum(total.row_count), 0) OR batch.cents <> coalesce(sum(total.cents), 0)"
)
COUNT_BILLS = "SELECT count(*) FROM fingerprint"
ROWS_WITHOUT_BILL = (
    f"SELECT count(*) FROM (SELECT id FROM row WHERE state <> {REJECTED} AND id NOT IN (SELECT id FROM fingerprint)"
    " UNION SELECT id FROM fingerprint WHERE named AND id NOT IN (SELECT id FROM payment_id))"
)
CHUNKS_UNLIKE_ROWS = (
    "SELECT count(*) FROM chunk LEFT JOIN"
    f" (SELECT chunk, sum(state IN ({_OPEN})) AS open FROM row WHERE chunk IS NOT NULL GROUP BY chunk) AS held"
    " ON held.chunk = chunk.id WHERE chunk.open_rows <> coalesce(held.open, 0)"
    " OR (chunk.open_rows > 0) <> EXISTS (SELECT 1 FROM body WHERE body.chunk = chunk.id)"
    " OR EXISTS (SELECT 1 FROM detail WHERE detail.chunk = chunk.id) = EXISTS (SELECT 1 FROM event"
    " WHERE kind = 'purged' AND kind <> 'progress' AND event.batch = chunk.batch)"
)
TEXTS_OF_PURGED = (
    "SELECT count(*) FROM event JOIN attempt ON attempt.id >= event.batch << 32 AND attempt.id < event.batch + 1 << 32"
    " WHERE kind = 'purged' AND kind <> 'progress' AND (message IS NOT NULL OR reason IS NOT NULL)"
)

# A ledger that moves to another database: see moving.TABLES

LAST_DETAIL = "SELECT detail FROM event WHERE kind = ? AND kind <> 'progress' ORDER BY number DESC LIMIT 1"
LAST_MAC_BEFORE = "SELECT number, mac FROM event WHERE kind <> ? ORDER BY number DESC LIMIT 1"
MOVING = {
    "event": f"SELECT {TABLES['event']} FROM event WHERE number <= ? ORDER BY number",
    "batch": f"SELECT {TABLES['batch']} FROM batch ORDER BY id",
    "run": ALL_RUNS,
    "total": ALL_TOTALS,
    "payment": f"SELECT {_PLACE.format('row')}, line, amount_cents, direction, row.state, attempts, chunk, payee,"
    " account, sent_at, reasons, pay_on, sent_on FROM row LEFT JOIN attempt ON attempt.id = row.id ORDER BY row.id",
    "attempt": f"SELECT {_PLACE.format('attempt')}, attempts, sent_at, attempt.state, finished_at, http_status,"
    " response_code, message, gateway_reference, reason FROM attempt JOIN row ON row.id = attempt.id"
    " ORDER BY attempt.id",
    "chunk": "SELECT batch, id, open_rows FROM chunk ORDER BY id",
    "body": BODIES,
    "detail": DETAILS,
    "fingerprint": f"SELECT fingerprint, {_PLACE.format('fingerprint')}, named FROM fingerprint ORDER BY fingerprint",
    "payment_id": f"SELECT payment_id, {_PLACE.format('payment_id')} FROM payment_id ORDER BY payment_id",
    "paid": f"SELECT {TABLES['paid']} FROM paid ORDER BY payee, account, batch",
}


ROWS_IN_STATE = "SELECT id & 4294967295 FROM row WHERE id >= ? AND id < ? AND state = {:d} ORDER BY id"
"""A state's code as it stands in the statement lets SQLite use the partial index on rows in sending."""
END_OF_ROWS = "SELECT ifnull(max(id), 0) + 1 FROM row WHERE id >= ? AND id < ?"


def rows_in(states: int, *, of_amounts: bool, of_due: bool) -> str:
    """Return the statement for rows of a range of ids with their latest attempts, in `states` states, by column.

    `of_amounts`: only those whose cents are in the JSON array that is the next parameter; `of_due`: only those that are
    due by the day that is the last.

    One JSON array per column, or only the digits of state and direction, which have one each: Python reads many values
    from one text in less time than it takes to fetch them one by one.
    """
    columns = (
        "row.id & 4294967295, line, amount_cents, attempts, chunk, sent_at, finished_at, http_status, response_code,"
        " message, gateway_reference, reason"
    )
    arrays = ", ".join(f"json_group_array({column})" for column in columns.split(", "))
    return (
        f"SELECT group_concat(row.state, ''), group_concat(direction, ''), {arrays}"
        " FROM row LEFT JOIN attempt ON attempt.id = row.id"
        f" WHERE row.id >= ? AND row.id < ? AND row.state IN ({', '.join('?' * states)})"
        f"{' AND amount_cents IN (SELECT value FROM json_each(?))' if of_amounts else ''}"
        f"{f' AND {_IS_DUE}' if of_due else ''}"
    )
