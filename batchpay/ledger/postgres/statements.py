# ruff: noqa: S608 - what is in braces are state codes and table names, our own words
"""Every statement that the PostgreSQL ledger runs, by name, grouped by table.

All except what creates the schema and moves a run's groups (the numbered .sql files next to this one). Values are
always parameters; every name includes its schema.
"""

from __future__ import annotations

from functools import cache

from batchpay.ledger.columns import CANCELLED
from batchpay.ledger.event_chain import DAY_MS, EPOCH_DAY
from batchpay.ledger.states import ACCEPTED, DECLINED, IN_DOUBT, OPEN, PENDING, REJECTED, SENDING
from batchpay.payment import SamePayment as Same

_OPEN = ", ".join(map(str, OPEN))
_NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_COUNTED = ", ".join(map(str, (*OPEN, ACCEPTED)))

# Transactions, the server, and the ledger itself

BEGIN, COMMIT, ROLLBACK = "BEGIN", "COMMIT", "ROLLBACK"
BEGIN_POOLED = (
    "BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL statement_timeout = 0; SET LOCAL jit = off;"
    " SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '5s'; SET LOCAL enable_seqscan = off;"
    " SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL search_path = pg_catalog, pg_temp"
)
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# Server, timeline, database and our table, and the server's address. The timeline that is written now: for seconds
# after a promotion, the control file still names the one before. A table's number outlives VACUUM FULL and TRUNCATE.
_WHERE = (
    "(SELECT system_identifier::text FROM pg_catalog.pg_control_system()) || '/' || CASE WHEN pg_is_in_recovery()"
    " THEN '' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END || '/' || (SELECT d.oid::text FROM"
    " pg_catalog.pg_database d WHERE d.datname = current_database()) || '/' || coalesce((SELECT c.oid::text FROM"
    " pg_catalog.pg_class c WHERE c.relname = 'ledger' AND c.relnamespace = (SELECT n.oid FROM"
    " pg_catalog.pg_namespace n WHERE n.nspname = 'batchpay')), '') || ' ' || coalesce(host(inet_server_addr()),"
    " 'socket') || ':' || current_setting('port')"
)
WHERE = f"SELECT {_WHERE}"
SERVER = (
    "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('synchronous_commit'),"
    " current_setting('server_encoding'), (SELECT count(*) FROM pg_catalog.pg_stat_replication r WHERE"
    " coalesce(r.application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')),"
    " current_setting('synchronous_standby_names'), current_setting('fsync'), current_setting('full_page_writes'),"
    " current_setting('zero_damaged_pages'), current_setting('ignore_checksum_failure'),"
    f" current_setting('client_min_messages'), current_setting('search_path'), {_WHERE}"
)
WEAKNESSES = (
    "SELECT current_setting('data_checksums'), pg_has_role(current_user, c.relowner, 'USAGE')"
    " FROM pg_catalog.pg_class c WHERE c.oid = 'batchpay.payment'::regclass"
)
HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'batchpay')"
LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(7089057378828283247)"
LEDGER = "SELECT version, ledger_id, key_id, epoch, is_arriving FROM batchpay.ledger"
HAS_OLDER_DIGESTS = "SELECT has_older_digests FROM batchpay.ledger"
ADD_LEDGER = (
    "INSERT INTO batchpay.ledger (id, version, ledger_id, key_id, number, mac, place) VALUES (1, %s, %s, %s, 0, %s, %s)"
)
STANDING_OF_LEDGER = "SELECT place, epoch, behind FROM batchpay.ledger"
SET_PLACE = "UPDATE batchpay.ledger SET place = %s"
SET_BEHIND = "UPDATE batchpay.ledger SET behind = %s"
ACCEPT_LEDGER = "UPDATE batchpay.ledger SET place = %s, epoch = epoch + 1, behind = NULL RETURNING epoch"
SET_VERSION = "UPDATE batchpay.ledger SET version = %s"
# A machine that sleeps in a transaction that others wait for keeps its locks for this long, and no longer.
_NOT_ASLEEP = "set_config('idle_in_transaction_session_timeout', '60s', true)"
LOCK_LEDGER = f"SELECT number, mac, registrations, {_NOT_ASLEEP} FROM batchpay.ledger FOR UPDATE"
HEAD = "SELECT number, mac FROM batchpay.ledger"
SET_HEAD = "UPDATE batchpay.ledger SET number = %s, mac = %s"
REGISTRATION_COUNT = "SELECT registrations FROM batchpay.ledger"
COUNT_REGISTRATION = "UPDATE batchpay.ledger SET registrations = registrations + 1"
SET_REGISTRATION = "UPDATE batchpay.batch SET registration = %s WHERE id = %s"
_MEANWHILE = (
    "EXISTS (SELECT FROM batchpay.{0} n WHERE n.batch = %(batch)s AND EXISTS (SELECT FROM batchpay.{0} o JOIN"
    " batchpay.batch b ON b.id = o.batch WHERE o.{0} = n.{0} AND o.batch <> n.batch AND b.registration > %(seen)s))"
)
ADDED_MEANWHILE = f"SELECT {_MEANWHILE.format('fingerprint')} OR {_MEANWHILE.format('payment_id')}"
WAIT_LONG = "SET LOCAL lock_timeout = '120s'"

# History

ADD_EVENT = (
    "INSERT INTO batchpay.event (chain, number, at, batch, kind, who, why, detail, mac)"
    " VALUES (0, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING seq"
)
_EVENT = "seq, chain, number, at, batch, kind, who, why, detail, mac"
EVENTS = f"SELECT {_EVENT} FROM batchpay.event ORDER BY seq"
EVENTS_OF_BATCH = (
    f"SELECT {_EVENT} FROM batchpay.event WHERE (chain = 0 AND number >= %(number)s)"
    " OR chain IN (SELECT id FROM batchpay.run WHERE batch = %(batch)s) ORDER BY seq"
)
LAST_OF_OWN_CHAIN = (
    f"SELECT {_EVENT} FROM (SELECT * FROM batchpay.event WHERE chain = 0 ORDER BY number DESC LIMIT %s) AS latest"
    " ORDER BY number"
)
_NAMED_EVENT = (
    "SELECT e.seq, e.at, b.name, e.kind, e.who, e.why, e.detail FROM batchpay.event e"
    " LEFT JOIN batchpay.batch b ON b.id = e.batch"
)
NAMED_EVENTS = f"{_NAMED_EVENT} WHERE %(batch)s::int IS NULL OR e.batch = %(batch)s ORDER BY e.seq"
LATEST_EVENT = f"{_NAMED_EVENT} WHERE e.kind = %s AND e.kind <> 'progress' ORDER BY e.seq DESC LIMIT 1"
MAC_OF_EVENT = "SELECT mac FROM batchpay.event WHERE seq = %s"
MAC_OF_NUMBER = "SELECT mac FROM batchpay.event WHERE chain = 0 AND number = %s"
LAST_EVENT = "SELECT seq, at, mac FROM batchpay.event ORDER BY seq DESC LIMIT 1"
LAST_OF_KINDS = (
    "SELECT kind, detail FROM batchpay.event WHERE kind IN (%s, %s) AND kind <> 'progress' ORDER BY seq DESC LIMIT 1"
)
LAST_EVENT_OF_BATCH = "SELECT max(at) FROM batchpay.event WHERE batch = %s AND kind <> 'progress'"
LAST_PROGRESS_OF_BATCH = (
    "SELECT greatest((SELECT max(e.at) FROM batchpay.event e WHERE e.batch = asked.batch AND e.kind <> 'progress'"
    " AND e.kind NOT IN ('started', 'finished', 'gateway moved')), (SELECT max(a.finished_at) FROM batchpay.attempt a"
    f" WHERE a.batch = asked.batch AND a.state <> {PENDING})) FROM (SELECT %s::int AS batch) AS asked"
)
REGISTRATION = "SELECT number FROM batchpay.event WHERE kind = 'registered' AND kind <> 'progress' AND batch = %s"
PLANS_USED = (
    "SELECT b.name, e.detail FROM batchpay.event e JOIN batchpay.batch b ON b.id = e.batch"
    " WHERE e.kind = %s AND e.kind <> 'progress'"
)
ADDED_SINCE = (
    "SELECT e.detail FROM batchpay.event e JOIN batchpay.batch b ON b.id = e.batch WHERE e.kind IN ('registered',"
    " 'released') AND e.kind <> 'progress' AND e.at >= %(since)s AND b.environment = %(environment)s"
)
EVENTS_OF_KINDS = (
    "SELECT kind, detail FROM batchpay.event WHERE batch = %s AND kind IN (%s, %s, %s) AND kind <> 'progress'"
    " ORDER BY seq"
)

# Batches and runs

BATCH = (
    "SELECT b.id, b.name, b.digest, b.file, b.origin, b.environment, b.columns, b.registered_at, b.row_count,"
    " b.cents, b.again_reason, b.options, r.started_at, r.finished_at, r.stopped, (SELECT e.detail FROM"
    " batchpay.event e WHERE e.kind = 'finished' AND e.kind <> 'progress' AND e.batch = b.id ORDER BY e.seq DESC"
    " LIMIT 1), (SELECT max(e.at) FROM batchpay.event e WHERE e.kind = 'purged' AND e.kind <> 'progress' AND"
    " e.batch = b.id) FROM batchpay.batch b LEFT JOIN batchpay.run r ON r.id = (SELECT max(l.id) FROM batchpay.run"
    " l WHERE l.batch = b.id)"
)
PURGED_AT = "SELECT max(at) FROM batchpay.event WHERE kind = 'purged' AND kind <> 'progress' AND batch = %s"
BATCHES = f"{BATCH} ORDER BY b.id DESC"
BATCHES_OF_DIGEST = (
    "SELECT name, again_reason FROM batchpay.batch WHERE digest = %(digest)s AND environment = %(environment)s"
    " ORDER BY id DESC"
)
BATCHES_OF_FILE = (
    f"{BATCH} WHERE b.environment = %(environment)s AND strpos(b.options, %(file_digest)s) > 0 ORDER BY b.id DESC"
)
LATEST_BATCH = (
    f"{BATCH} WHERE %(environment)s::text IS NULL OR b.environment = %(environment)s ORDER BY b.id DESC LIMIT 1"
)
BATCH_NAMED = f"{BATCH} WHERE b.name = %s"
BATCHES_BEGINNING = f"{BATCH} WHERE starts_with(b.name, %s) LIMIT 2"
BATCH_BY_NAME = "SELECT id, digest FROM batchpay.batch WHERE name = %s"
BATCH_IDS = "SELECT id FROM batchpay.batch ORDER BY id"
BATCH_NAMES = "SELECT id, name FROM batchpay.batch WHERE environment = %s"
ORIGINS = "SELECT origin FROM batchpay.batch WHERE environment = %s GROUP BY origin ORDER BY max(id)"
ORIGIN_OF_BATCH = "SELECT id, origin FROM batchpay.batch WHERE name = %s FOR UPDATE"
MOVE_BATCH = "UPDATE batchpay.batch SET origin = %s WHERE id = %s"
COUNT_BATCHES = "SELECT count(*) FROM batchpay.batch WHERE environment = %s"
NAMES_LIKE = "SELECT name FROM batchpay.batch WHERE starts_with(name, %s)"
ADD_BATCH = (
    "INSERT INTO batchpay.batch (name, digest, file, origin, columns, options, registered_at, again_reason,"
    " environment) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id"
)
SET_CONTROL_TOTALS = "UPDATE batchpay.batch SET row_count = %s, cents = %s WHERE id = %s"
LOCK_BATCH = f"SELECT id, {_NOT_ASLEEP} FROM batchpay.batch WHERE id = %s FOR UPDATE"
ADD_RUN = (
    "INSERT INTO batchpay.run (batch, who, host, started_at, token, mac, day) VALUES (%s, %s, %s, %s, %s, %s, %s)"
    " RETURNING id"
)
ENLIVEN_RUN = "UPDATE batchpay.run SET is_live = true, mac = %s WHERE id = %s"
LIVE_RUNS = "SELECT id, batch FROM batchpay.run WHERE is_live ORDER BY id"
LIVE_RUN_OF_BATCH = "SELECT id, host, token FROM batchpay.run WHERE batch = %s AND is_live"
CLOCK = f"SELECT {_NOW_MS}"
_HEARTBEAT_AGE = f"{_NOW_MS} - r.seen_at"
LIVE_RUNS_OF_DIGEST = (
    f"SELECT r.id, r.host, r.token, {_HEARTBEAT_AGE}, b.id, b.name FROM batchpay.run r"
    " JOIN batchpay.batch b ON b.id = r.batch WHERE b.digest = %s AND r.is_live ORDER BY r.id"
)
LIVE_RUNS_OF_ENVIRONMENT = (
    f"SELECT b.name, r.token, {_HEARTBEAT_AGE} FROM batchpay.run r JOIN batchpay.batch b ON b.id = r.batch"
    " WHERE b.environment = %s AND r.is_live ORDER BY r.id"
)
RUNS_OF_BATCH = (
    f"SELECT r.id, r.host, r.is_live, r.started_at, r.finished_at, r.seen_at, {_HEARTBEAT_AGE}, r.stopped, r.is_fenced,"
    " r.heard_at FROM batchpay.run r WHERE r.batch = %s ORDER BY r.id"
)
ROWS_BY_RUN = (
    "SELECT run, state, count(*) FROM batchpay.payment WHERE batch = %s AND run IS NOT NULL"
    f" AND state > {SENDING} GROUP BY run, state"
)
SENT = (
    f"SELECT coalesce(sum(row_count) FILTER (WHERE state > {SENDING}), 0)::bigint, coalesce(sum(row_count), 0)::bigint"
    f" FROM batchpay.control_total WHERE batch = %s AND state <> {REJECTED}"
)
BEATS_OF_RUN = "SELECT beats FROM batchpay.run WHERE id = %s AND is_live"
# A commit of one's own that locks nothing, and that waits for disk and standbys like any other.
COMMIT_NOTHING = "SELECT pg_logical_emit_message(true, 'batchpay', '')"
LOCK_RUN = (
    "SELECT number, mac FROM batchpay.run WHERE id = %s AND token = %s AND generation = %s AND is_live FOR UPDATE"
)
RAISE_GENERATION = (
    "UPDATE batchpay.run SET generation = generation + 1, beats = beats + 1 WHERE id = %s AND token = %s AND is_live"
    " RETURNING generation, number, mac"
)
BEAT = (
    f"UPDATE batchpay.run SET beats = beats + 1, seen_at = {_NOW_MS}"
    " WHERE id = %s AND token = %s AND generation = %s AND is_live RETURNING seen_at"
)
END_RUN = "UPDATE batchpay.run SET is_live = false, finished_at = %s, stopped = %s WHERE id = %s"
FENCE = (
    "UPDATE batchpay.run SET is_live = false, is_fenced = true, heard_at = %(heard)s"
    " WHERE id = %(run)s AND is_live AND (%(beats)s::bigint IS NULL OR beats = %(beats)s) RETURNING number, mac"
)
FENCED = "SELECT id, token FROM batchpay.run WHERE batch = %s AND is_fenced"
SET_HEARD = "UPDATE batchpay.run SET heard_at = %s WHERE id = %s AND is_fenced AND heard_at IS NULL"
HOSTS_ARE_GONE = (
    "UPDATE batchpay.run SET heard_at = %s WHERE batch = %s AND is_fenced AND heard_at IS NULL RETURNING id, host"
)
SENT_BY_UNHEARD = (
    "SELECT p.row, r.host FROM batchpay.payment p JOIN batchpay.run r ON r.id = p.run WHERE p.batch = %s"
    " AND p.row = ANY(%s::int[]) AND r.is_fenced AND r.heard_at IS NULL ORDER BY p.row LIMIT 1"
)

# A group of a run

ATTEMPT_NUMBERS = (
    "SELECT attempts FROM batchpay.payment WHERE batch = %s AND row = ANY(%s::int[]) AND state = 4 AND run = %s"
    " ORDER BY row"
)
SEQ_OF_EVENT = "SELECT seq FROM batchpay.event WHERE chain = %s AND number = %s"
COMMIT_GROUP = (
    "SELECT batchpay.within_day(batchpay.commit_group(%s::int, %s::bytea, %s::int, %s::int, %s::int[], %s::int[],"
    " %s::smallint[], %s::int[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::bigint, %s::bigint,"
    " %s::text, %s::text, %s::bytea), %s::int, %s::int, %s::int[], %s::int[], %s::smallint[], %s::bigint, %s::bigint)"
)
"""Commits a group, unless more than the limits of its day would be sent with it."""
COMMIT_UNIQUE_GROUP = COMMIT_GROUP.replace("commit_group", "commit_unique_group")


@cache
def here(statement: str) -> str:
    """Return a statement that does nothing on another server: behind a pooler it may be one since a moment ago."""
    return f"SELECT CASE WHEN {_WHERE} = %s THEN {statement.removeprefix('SELECT ')} END"


# Sums of a day. Accounts are digests, written as the bytes that they are.

_WANTED_ROWS = "SELECT value::int FROM json_array_elements_text(%(rows)s::json)"
COUNT_ON_DAYS = [f"SELECT batchpay.count_on_days(%(batch)s, ARRAY({_WANTED_ROWS}), %(sign)s)"]
DOUBT_TODAY = f"UPDATE batchpay.payment SET sent_on = %(day)s WHERE batch = %(batch)s AND row IN ({_WANTED_ROWS})"
DAYS_UNLIKE_ROWS = "SELECT DISTINCT day FROM batchpay.day_unlike_rows ORDER BY day"
DROP_DAYS = "DELETE FROM batchpay.payee_day WHERE day < %s"
_WANTED = f"FROM batchpay.payment WHERE batch = %(batch)s AND row = ANY(ARRAY({_WANTED_ROWS}))"
ROWS_TO_FIT = f"SELECT row, amount_cents, direction, int8send(account) {_WANTED} ORDER BY row"
_SENT_ON_DAY = "environment = %(environment)s AND day = %(day)s"
SENT_BY_DIRECTION = (
    f"SELECT direction, sum(cents)::bigint FROM batchpay.sent_on_day WHERE {_SENT_ON_DAY} GROUP BY direction"
)
SENT_BY_ACCOUNT = (
    f"SELECT int8send(account), cents FROM batchpay.payee_day WHERE {_SENT_ON_DAY}"
    f" AND account IN (SELECT account {_WANTED})"
)
_PLANNED = "SELECT * FROM batchpay.planned_by_{}(%(environment)s, %(today)s, %(begins)s, %(batch)s)"
PLANNED_BY_DIRECTION, PLANNED_BY_ACCOUNT = map(_PLANNED.format, ("direction", "account"))
"""What was sent, what is due, and what was registered today without a later day."""

# The pace that all runs share

# A moment more than an hour ahead is of before the clock was set back.
LOOK_AT_PACE = (
    "SELECT (SELECT count(*) FROM batchpay.run r JOIN batchpay.batch b ON b.id = r.batch WHERE r.is_live"
    " AND b.environment = %(environment)s AND b.origin = %(origin)s"
    " AND extract(epoch FROM clock_timestamp()) * 1000 - r.seen_at < %(lease_ms)s::float8),"
    " coalesce((SELECT left_s FROM (SELECT free_at - extract(epoch FROM clock_timestamp())::float8 AS left_s"
    " FROM batchpay.pace WHERE gateway = %(gateway)s) AS pause WHERE left_s < %(most_s)s::float8), 0)::float8"
)
PAUSE = (
    "INSERT INTO batchpay.pace AS p (gateway, free_at) VALUES"
    " (%(gateway)s, extract(epoch FROM clock_timestamp())::float8 + %(seconds)s::float8)"
    " ON CONFLICT (gateway) DO UPDATE SET free_at = CASE WHEN p.free_at BETWEEN excluded.free_at"
    " AND excluded.free_at + %(most_s)s::float8 THEN p.free_at ELSE excluded.free_at END"
)
KNOWN_LIMIT = "SELECT rate, window_s FROM batchpay.known_limit WHERE gateway = %(gateway)s"
REMEMBER_LIMIT = (
    "INSERT INTO batchpay.known_limit (gateway, rate, window_s) VALUES (%(gateway)s, %(rate)s::float8,"
    " %(window_s)s::float8) ON CONFLICT (gateway) DO UPDATE SET rate = excluded.rate, window_s = excluded.window_s"
)

# Control totals

TOTALS = "SELECT state, direction, row_count, cents FROM batchpay.control_total WHERE batch = %s"
ALL_TOTALS = (
    "SELECT batch, state, direction, row_count, cents FROM batchpay.control_total WHERE row_count <> 0 OR cents <> 0"
)
TOTALS_OF_BATCH = f"{TOTALS} AND (row_count <> 0 OR cents <> 0)"
ADD_TO_TOTAL = (
    "INSERT INTO batchpay.total AS t VALUES (%s, %s, %s, %s, %s) ON CONFLICT (batch, state, direction)"
    " DO UPDATE SET row_count = t.row_count + excluded.row_count, cents = t.cents + excluded.cents"
)

# Rows

COPY_PAYMENTS = (
    "COPY batchpay.payment (amount_cents, payee, account, batch, row, line, chunk, state, direction)"
    " FROM STDIN (FORMAT binary)"
)
COPY_PAYMENTS_WITH_DAYS = COPY_PAYMENTS.replace("direction)", "direction, pay_on)")
COPY_REJECTED = (
    "COPY batchpay.payment (amount_cents, batch, row, line, state, direction, reasons, seal) FROM STDIN (FORMAT binary)"
)
COPY_CHUNKS = "COPY batchpay.chunk (batch, chunk, open_rows) FROM STDIN (FORMAT binary)"
COPY_BODIES = "COPY batchpay.body (batch, chunk, sealed) FROM STDIN (FORMAT binary)"
COPY_DETAILS = "COPY batchpay.detail (batch, chunk, sealed) FROM STDIN (FORMAT binary)"
COPY_FINGERPRINTS = "COPY batchpay.fingerprint (fingerprint, batch, row, named) FROM STDIN (FORMAT binary)"
COPY_PAYMENT_IDS = "COPY batchpay.payment_id (payment_id, batch, row) FROM STDIN (FORMAT binary)"
NEXT_CHUNK = "SELECT coalesce(max(chunk), 0) + 1 FROM batchpay.chunk WHERE batch = %s"
REJECTED_AMONG = (
    f"SELECT row, amount_cents, direction FROM batchpay.payment WHERE batch = %s AND row = ANY(%s::int[])"
    f" AND state = {REJECTED} ORDER BY row FOR UPDATE"
)
RELEASE_ROWS = (
    f"UPDATE batchpay.payment p SET state = {PENDING}, reasons = NULL, seal = NULL, direction = n.direction,"
    " chunk = n.chunk, payee = n.payee, account = n.account, pay_on = n.pay_on"
    " FROM unnest(%s::int[], %s::smallint[], %s::int[], %s::bigint[], %s::bigint[], %s::int[])"
    " AS n (row, direction, chunk, payee, account, pay_on)"
    f" WHERE p.batch = %s AND p.row = n.row AND p.state = {REJECTED}"
)
MOVE_ROWS = (
    "UPDATE batchpay.payment SET state = %s WHERE batch = %s AND row = ANY(%s::int[]) AND state = %s"
    " RETURNING row, amount_cents, direction, chunk, attempts, sent_at"
)
REJECT_ROWS = (
    f"UPDATE batchpay.payment p SET state = {REJECTED}, reasons = n.reasons, seal = n.seal FROM unnest(%s::int[],"
    " %s::text[], %s::bytea[]) AS n (row, reasons, seal) WHERE p.batch = %s AND p.row = n.row AND p.state ="
    f" {PENDING} RETURNING p.row, p.amount_cents, p.direction, p.chunk"
)
FACTS = "SELECT row, line, amount_cents FROM batchpay.payment WHERE batch = %s AND row = ANY(%s::int[])"
ROWS_IN = "SELECT row FROM batchpay.payment WHERE batch = %s AND state = %s ORDER BY row"
REJECTED_ROWS = (
    f"SELECT row, line, amount_cents, reasons FROM batchpay.payment WHERE batch = %s AND state = {REJECTED}"
    " ORDER BY row"
)
MAY_HAVE_BEEN_SENT = (
    "SELECT row FROM batchpay.attempt WHERE batch = %s AND row = ANY(%s::int[])"
    f" AND state <> {PENDING} ORDER BY row LIMIT 1"
)
STANDING = (
    "SELECT p.row, p.state, coalesce((SELECT a.state FROM batchpay.attempt a WHERE a.batch = p.batch AND a.row = p.row"
    f" ORDER BY a.attempt DESC LIMIT 1), {PENDING})"
    " FROM batchpay.payment p WHERE p.batch = %s AND p.row = ANY(%s::int[])"
)
STILL_IN_DOUBT_OF_RUN = (
    f"SELECT 1 FROM batchpay.payment WHERE batch = %s AND row = %s AND state = {IN_DOUBT} AND attempts = %s"
    " AND run = %s FOR UPDATE"
)
STANDING_OF_ROW = "SELECT state, attempts FROM batchpay.payment WHERE batch = %s AND row = %s FOR UPDATE"
STILL_IN_ATTEMPT = (
    "SELECT 1 FROM batchpay.payment WHERE batch = %s AND row = %s AND state = %s AND attempts = %s FOR UPDATE"
)
ROWS_WITH_ATTEMPTS = (
    "SELECT p.row, p.line, p.state, p.amount_cents, p.direction, p.attempts, p.chunk, p.sent_at, a.finished_at,"
    " a.http_status, a.response_code, a.message, a.gateway_reference, a.reason FROM batchpay.payment p"
    " LEFT JOIN batchpay.attempt a ON a.batch = p.batch AND a.row = p.row AND a.attempt = p.attempts"
    " WHERE p.batch = %(batch)s AND p.state = ANY(%(states)s::smallint[])"
    " AND (%(cents)s::bigint[] IS NULL OR p.amount_cents = ANY(%(cents)s::bigint[]))"
    " AND (p.pay_on IS NULL OR p.pay_on <= %(due)s::int) ORDER BY p.row"
)

# Single attempts
LATEST_ATTEMPTS = (
    "SELECT p.row, p.attempts, p.sent_at, a.finished_at, a.http_status, a.response_code, a.message,"
    " a.gateway_reference FROM batchpay.payment p LEFT JOIN batchpay.attempt a ON a.batch = p.batch AND a.row ="
    " p.row AND a.attempt = p.attempts WHERE p.batch = %s AND p.row = ANY(%s::int[])"
)
NOTE_ATTEMPT = (
    "INSERT INTO batchpay.attempt (batch, row, attempt, sent_at, state, finished_at, http_status, response_code,"
    " message, gateway_reference, reason, seal) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
    " ON CONFLICT (batch, row, attempt) DO UPDATE SET state = excluded.state, finished_at = excluded.finished_at,"
    " http_status = excluded.http_status, response_code = excluded.response_code, message = excluded.message,"
    " gateway_reference = excluded.gateway_reference, reason = excluded.reason, seal = excluded.seal"
)
REFERENCES = (
    "SELECT a.batch, a.row, a.gateway_reference FROM batchpay.attempt a JOIN batchpay.payment p"
    " ON p.batch = a.batch AND p.row = a.row AND p.attempts = a.attempt WHERE a.gateway_reference IS NOT NULL"
)
_ENVIRONMENT = "(SELECT b.environment FROM batchpay.batch b WHERE b.id = {})"
ROWS_WITH_REFERENCES = (
    "SELECT m.value::int, o.batch, o.row FROM json_each_text(%(references)s::json) AS m CROSS JOIN LATERAL (SELECT"
    " a.batch, a.row FROM batchpay.attempt a WHERE a.gateway_reference = m.key AND (a.batch, a.row) <> (%(batch)s,"
    f" m.value::int) AND {_ENVIRONMENT.format('a.batch')} = {_ENVIRONMENT.format('%(batch)s')} LIMIT 1) AS o"
)
"""For rows of a batch by reference, batch and number of another row of the environment that has the reference too."""

# Chunks and payloads

PENDING_ROWS = (
    "SELECT row, attempts, chunk, amount_cents, direction, int8send(account) FROM batchpay.payment"
    f" WHERE batch = %s AND row > %s AND state = {PENDING} AND (pay_on IS NULL OR pay_on <= %s) ORDER BY row LIMIT %s"
)
_HAS_DAY = f"pay_on IS NOT NULL AND state = {PENDING}"
DAYS = (
    "SELECT pay_on, direction, count(*), sum(amount_cents)::bigint FROM batchpay.payment"
    f" WHERE batch = %s AND {_HAS_DAY} GROUP BY pay_on, direction"
)
CHUNKS_WITH_DAYS = f"SELECT DISTINCT batch, chunk FROM batchpay.payment WHERE {_HAS_DAY}"
PENDING_DAYS_OF_CHUNK = (
    "SELECT row, pay_on FROM batchpay.payment WHERE batch = %(batch)s AND row BETWEEN %(first)s AND %(last)s"
    f" AND chunk = %(chunk)s AND state = {PENDING}"
)
CLOSE_ROWS = (
    "UPDATE batchpay.chunk SET open_rows = open_rows - %(rows)s WHERE batch = %(batch)s AND chunk = %(chunk)s"
    " RETURNING open_rows"
)
BODY = "SELECT sealed FROM batchpay.body WHERE batch = %s AND chunk = %s"
ERASE_BODY = "DELETE FROM batchpay.body WHERE batch = %(batch)s AND chunk = %(chunk)s"
DETAIL = "SELECT sealed FROM batchpay.detail WHERE batch = %(batch)s AND chunk = %(chunk)s"

# What a purge erases

_IS_DEED = (
    "e.kind <> 'progress' AND e.kind NOT IN ('gateway moved', 'purged')"
    # Start and end of an idle run are adjacent: a file that is submitted each night still grows stale.
    " AND NOT (e.kind = 'started' AND EXISTS (SELECT FROM batchpay.event n WHERE n.seq = e.seq + 1"
    " AND n.kind = 'finished' AND n.batch = e.batch))"
    " AND NOT (e.kind = 'finished' AND EXISTS (SELECT FROM batchpay.event n WHERE n.seq = e.seq - 1"
    " AND n.kind = 'started' AND n.batch = e.batch))"
)
LAST_DEED_ON_BATCH = f"SELECT max(e.at) FROM batchpay.event e WHERE e.batch = %s AND {_IS_DEED}"
OLD_BATCHES = (
    "SELECT b.name, deed.at, (SELECT count(*) FROM batchpay.payment p WHERE p.batch = b.id AND p.chunk IS NOT NULL)"
    f" FROM batchpay.batch b JOIN (SELECT e.batch, max(e.at) AS at FROM batchpay.event e WHERE {_IS_DEED}"
    " GROUP BY e.batch) AS deed ON deed.batch = b.id WHERE deed.at < %s AND NOT EXISTS (SELECT FROM batchpay.event e"
    " WHERE e.kind = 'purged' AND e.kind <> 'progress' AND e.batch = b.id) ORDER BY b.id"
)
OPEN_ROWS = (
    f"SELECT coalesce(sum(row_count), 0)::bigint FROM batchpay.control_total WHERE batch = %s AND state IN ({_OPEN})"
)
ROWS_WITH_DETAILS = "SELECT count(*) FROM batchpay.payment WHERE batch = %s AND chunk IS NOT NULL"
ERASE_DETAILS = "DELETE FROM batchpay.detail WHERE batch = %s"
TEXTS_OF_ATTEMPTS = (
    "SELECT row, attempt, sent_at, state, finished_at, http_status, response_code, gateway_reference"
    " FROM batchpay.attempt WHERE batch = %s AND (row, attempt) > (%s, %s)"
    " AND (message IS NOT NULL OR reason IS NOT NULL) ORDER BY row, attempt LIMIT %s"
)
ERASE_TEXTS = (
    "UPDATE batchpay.attempt a SET message = NULL, reason = NULL, seal = n.seal FROM unnest(%s::int[], %s::smallint[],"
    " %s::bytea[]) AS n (row, attempt, seal) WHERE a.batch = %s AND a.row = n.row AND a.attempt = n.attempt"
)

# Digests of payments and payees

REMEMBER_PAYEES = (
    "INSERT INTO batchpay.paid (payee, account, batch, row_count, cents) SELECT payee, account, batch, count(*),"
    f" sum(amount_cents) FROM batchpay.payment WHERE batch = %s AND state = {ACCEPTED} GROUP BY payee, account, batch"
    " ON CONFLICT (payee, account, batch) DO UPDATE SET row_count = excluded.row_count, cents = excluded.cents"
)
_COMPARED = "(%(within)s = '' AND b.digest <> %(digest)s OR b.name = %(within)s) AND b.environment = %(environment)s"
COMPARED_BATCHES = f"SELECT b.id, b.name, b.file FROM batchpay.batch b WHERE {_COMPARED}"
_OTHERS = (
    " FROM batchpay.kept d JOIN batchpay.batch b ON b.id = d.batch AND b.environment = %s AND b.digest <> %s"
    " WHERE d.payee = ANY(%s::bigint[]) GROUP BY d.payee"
)
PAID_TO = f"SELECT d.payee, d.account, sum(d.row_count), sum(d.cents)::bigint, min(b.registered_at){_OTHERS}, d.account"
LATEST_BATCH_OF_PAYEES = (
    f"SELECT d.payee, max(d.batch) FILTER (WHERE d.row_count > 0){_OTHERS} HAVING max(d.row_count) > 0"
)
LAST_PAID_IN = (
    "SELECT DISTINCT ON (payee) payee, row, chunk FROM batchpay.payment"
    f" WHERE batch = %s AND state = {ACCEPTED} AND payee = ANY(%s::bigint[]) AND (batch, row) NOT IN"
    " (SELECT r.batch, r.row FROM batchpay.returned r) ORDER BY payee, row DESC"
)
# A payment counts from the later of its registration and its latest attempt: a batch may wait for days to be sent.
_AT = "greatest(b.registered_at, coalesce(p.sent_at, 0))"
# One that is not settled is not days ago, but still to come: whatever repeats it would be paid beside it. Where a row
# has a day of its own, days are counted between days, in both directions.
_IS_SCHEDULED = f"(p.pay_on IS NOT NULL AND p.state IN ({_OPEN}) AND %(days)s > 0)"
_IS_BILL = (
    "CASE WHEN %(in_file)s = 1 THEN NOT (w.named AND f.named) AND coalesce(abs(w.pay_on - p.pay_on) < %(apart)s, TRUE)"
    f" WHEN w.invoiced AND NOT (w.named AND f.named) THEN TRUE WHEN p.pay_on IS NULL AND p.state IN ({_OPEN}) THEN"
    f" %(days)s > 0 WHEN p.pay_on IS NULL AND w.pay_on IS NULL THEN {_AT} >= %(since)s"
    f" ELSE abs(coalesce(w.pay_on, %(today)s) - coalesce(p.pay_on, ({_AT} + %(offset)s) / {DAY_MS} + {EPOCH_DAY}))"
    " < CASE WHEN w.pay_on IS NULL THEN %(days)s ELSE %(apart)s END END"
)
_EARLIER = (
    f" JOIN batchpay.batch b ON b.id = f.batch AND {_COMPARED} JOIN batchpay.payment p ON p.batch = f.batch AND p.row ="
    f" f.row AND (p.state IN ({_COUNTED}){{}} OR p.state = {DECLINED} AND EXISTS (SELECT FROM batchpay.event e"
    " WHERE e.kind = 'resolved' AND e.kind <> 'progress' AND e.batch = p.batch))"
)
SENT_SINCE = (
    "b.environment = %(environment)s AND (b.registered_at >= %(since)s OR EXISTS (SELECT FROM batchpay.run r"
    " WHERE r.batch = b.id AND (r.finished_at IS NULL OR r.finished_at >= %(since)s)))"
)
_SINCE = f"{SENT_SINCE} AND b.digest <> %(digest)s"
BATCH_SINCE = f"SELECT 1 FROM batchpay.batch b WHERE {_SINCE} LIMIT 1"
PAID_TO_ACCOUNTS = (
    f"SELECT b.id, b.name, b.file, p.row, p.chunk, p.line, int8send(p.account), p.direction, p.amount_cents, {_AT} FROM"
    f" batchpay.batch b JOIN batchpay.payment p ON p.batch = b.id AND p.state IN ({ACCEPTED}, {SENDING}, {IN_DOUBT})"
    " AND int8send(p.account) IN (SELECT decode(a.value, 'hex') FROM json_array_elements_text(%(accounts)s::json) AS a"
    f" (value)) WHERE {_SINCE} AND {_AT} >= %(since)s ORDER BY b.id, p.row"
)
EARLIER_BY_PAYMENT_ID = (
    f"SELECT DISTINCT ON (w.row) w.row, CASE p.state WHEN {DECLINED} THEN {Same.DECLINED:d} ELSE {Same.PAYMENT_ID:d}"
    f" END AS same, f.batch, f.row, p.line, {_AT}, FALSE FROM unnest(%(keys)s::bigint[], %(rows)s::int[]) AS w (key,"
    f" row) JOIN batchpay.payment_id f ON f.payment_id = w.key{_EARLIER.format('')} ORDER BY w.row, same DESC, f.batch"
    " DESC, f.row DESC"
)
_OR_CANCELLED = f" OR p.reasons = '{CANCELLED}' AND %(in_file)s = 0"
EARLIER_BY_BILL = (
    f"SELECT DISTINCT ON (w.row) w.row, CASE WHEN p.state = {DECLINED} THEN {Same.DECLINED:d} * (w.named AND f.named OR"
    f" {_IS_BILL})::int WHEN {_IS_BILL} THEN {Same.BILL:d} WHEN w.named AND f.named OR {_IS_SCHEDULED} THEN"
    f" {Same.ANOTHER_ID:d} ELSE 0 END AS same, f.batch, f.row, p.line, {_AT}, p.state = {REJECTED} AS cancelled FROM"
    " unnest(%(keys)s::bigint[], %(rows)s::int[], %(named)s::bool[], %(invoiced)s::bool[], %(pay_on)s::int[]) AS w"
    " (key, row, named, invoiced, pay_on) JOIN batchpay.fingerprint f ON f.fingerprint = w.key"
    f"{_EARLIER.format(_OR_CANCELLED)} ORDER BY w.row, same DESC, cancelled, f.batch DESC, f.row DESC"
)

# The check: rows compared with the history

ROWS_OF_BATCH = (
    "SELECT row, coalesce(line, 0), amount_cents, direction, state FROM batchpay.payment WHERE batch = %s ORDER BY row"
)
BATCH_AS_REGISTERED = (
    "SELECT name, digest, row_count, cents, file, origin, columns, options, registered_at, again_reason,"
    " environment FROM batchpay.batch WHERE id = %s"
)
ROWS_UNLIKE_ATTEMPTS = (
    "SELECT count(*) FROM batchpay.payment p LEFT JOIN batchpay.attempt a ON a.batch = p.batch AND a.row = p.row AND"
    f" a.attempt = p.attempts WHERE p.batch = %s AND p.state <> {REJECTED} AND coalesce(a.state, CASE WHEN p.attempts >"
    f" 0 THEN {SENDING} ELSE {PENDING} END) <> p.state"
)
LATER_ATTEMPTS = (
    "SELECT count(*) FROM batchpay.attempt a LEFT JOIN batchpay.payment p ON p.batch = a.batch AND p.row = a.row"
    " WHERE a.batch = %s AND a.attempt > coalesce(p.attempts, -1)"
)
ATTEMPTS = (
    "SELECT row, attempt, sent_at, state, finished_at, http_status, response_code, message, gateway_reference,"
    " reason, seal FROM batchpay.attempt WHERE batch = %s"
)
ATTEMPTS_IN_STATE = f"{ATTEMPTS} AND state = %s"
REJECTED_WITH_SEALS = (
    f"SELECT row, line, amount_cents, reasons, seal FROM batchpay.payment WHERE batch = %s AND state = {REJECTED}"
)
ALL_RUNS = "SELECT id, batch, who, started_at, finished_at, stopped, number, mac, is_live FROM batchpay.run"
BATCHES_OUT_OF_TOTALS = (
    "SELECT b.name FROM batchpay.batch b LEFT JOIN batchpay.control_total t ON t.batch = b.id GROUP BY b.id"
    " HAVING b.row_count <> coalesce(sum(t.row_count), 0) OR b.cents <> coalesce(sum(t.cents), 0)"
    " OR coalesce(min(t.row_count), 0) < 0"
)
ROWS_WITHOUT_BILL = (
    f"SELECT count(*) FROM ((SELECT batch, row FROM batchpay.payment WHERE state <> {REJECTED}"
    " EXCEPT SELECT batch, row FROM batchpay.fingerprint) UNION (SELECT batch, row FROM batchpay.fingerprint"
    " WHERE named EXCEPT SELECT batch, row FROM batchpay.payment_id)) AS unknown"
)
CHUNKS_UNLIKE_ROWS = (
    "SELECT count(*) FROM batchpay.chunk c LEFT JOIN"
    f" (SELECT batch, chunk, count(*) FILTER (WHERE state IN ({_OPEN})) AS open FROM batchpay.payment"
    " WHERE chunk IS NOT NULL GROUP BY batch, chunk) AS held ON held.batch = c.batch AND held.chunk = c.chunk"
    " WHERE c.open_rows <> coalesce(held.open, 0)"
    " OR (c.open_rows > 0) <> EXISTS (SELECT FROM batchpay.body b WHERE b.batch = c.batch AND b.chunk = c.chunk)"
    " OR EXISTS (SELECT FROM batchpay.detail d WHERE d.batch = c.batch AND d.chunk = c.chunk)"
    " = EXISTS (SELECT FROM batchpay.event e WHERE e.kind = 'purged' AND e.kind <> 'progress' AND e.batch = c.batch)"
)
TEXTS_OF_PURGED = (
    "SELECT count(*) FROM batchpay.event e JOIN batchpay.attempt a ON a.batch = e.batch WHERE e.kind = 'purged'"
    " AND e.kind <> 'progress' AND (a.message IS NOT NULL OR a.reason IS NOT NULL)"
)
LOST_ROWS = (
    "SELECT (SELECT count(*) FROM batchpay.payment p WHERE NOT EXISTS (SELECT FROM batchpay.batch b WHERE b.id ="
    " p.batch)) + (SELECT count(*) FROM batchpay.fingerprint f WHERE NOT EXISTS (SELECT FROM batchpay.payment p WHERE"
    " p.batch = f.batch AND p.row = f.row))"
)
BODIES = "SELECT batch, chunk, sealed FROM batchpay.body"
DETAILS = "SELECT batch, chunk, sealed FROM batchpay.detail"

# A ledger that arrives from another database

EMPTY_LEDGER = """
ALTER TABLE batchpay.event DISABLE TRIGGER USER;
ALTER TABLE batchpay.attempt DISABLE TRIGGER USER;
TRUNCATE batchpay.ledger, batchpay.batch, batchpay.run, batchpay.chunk, batchpay.body, batchpay.detail,
    batchpay.payment, batchpay.attempt, batchpay.event, batchpay.total, batchpay.fingerprint, batchpay.payment_id,
    batchpay.paid, batchpay.fact, batchpay.day_total, batchpay.payee_day RESTART IDENTITY;
ALTER TABLE batchpay.event ENABLE TRIGGER USER;
ALTER TABLE batchpay.attempt ENABLE TRIGGER USER;
"""
ADD_ARRIVING = (
    "INSERT INTO batchpay.ledger (id, version, ledger_id, key_id, number, mac, place, registrations,"
    " has_older_digests, is_arriving) VALUES (1, %s, %s, %s, %s, %s, %s, %s, %s, true)"
)
ARRIVED_ROWS = [
    "SELECT batchpay.count_arrived()",
    "SELECT setval(pg_get_serial_sequence('batchpay.batch', 'id'), max(id)) FROM batchpay.batch",
    "SELECT setval(pg_get_serial_sequence('batchpay.run', 'id'), max(id)) FROM batchpay.run",
]
STANDING_OF_ARRIVING = "SELECT ledger_id, is_arriving FROM batchpay.ledger"
LATEST_EVENT_OF_KIND = (
    "SELECT seq, mac, detail FROM batchpay.event WHERE kind = %s AND kind <> 'progress' ORDER BY seq DESC LIMIT 1"
)
END_ARRIVING = "UPDATE batchpay.ledger SET is_arriving = false"
