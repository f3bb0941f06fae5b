# ruff: noqa: S608 - what is in braces are state codes, our own words
"""Statements with which the runs of one batch work alongside each other; the others are in statements.py."""

from __future__ import annotations

from batchpay.ledger.states import IN_DOUBT, REJECTED, SENDING

BEGIN_ALONE = (
    "UPDATE batchpay.batch SET is_shared = false, stop = NULL, in_a_row = 0, in_all = 0 WHERE id = %s"
    " AND (is_shared OR stop IS NOT NULL OR in_all > 0)"
)
BEAT = (
    "UPDATE batchpay.run SET beats = beats + 1, seen_at = %s, is_idle = is_idle OR %s"
    " WHERE id = %s AND token = %s AND generation = %s AND is_live RETURNING 1"
)
TELL = "UPDATE batchpay.batch SET stop = coalesce(stop, %s), is_shared = is_shared OR %s WHERE id = %s"
SHARED = "SELECT stop, in_a_row, in_all FROM batchpay.batch WHERE id = %s"
BEATS_OF_OTHERS = "SELECT id, beats, is_idle FROM batchpay.run WHERE batch = %s AND is_live AND id <> %s"
WAKE = "UPDATE batchpay.run SET is_idle = false WHERE id = %s AND is_live AND is_idle"
OTHERS_AT_WORK = (
    "SELECT EXISTS (SELECT FROM batchpay.run r WHERE r.batch = %(batch)s AND r.is_live AND NOT r.is_idle"
    " AND r.id <> %(run)s) OR (EXISTS (SELECT FROM batchpay.chunk k WHERE k.batch = %(batch)s AND k.run IS NULL"
    " AND k.open_rows > 0) AND (SELECT r.is_leader OR b.is_shared FROM batchpay.run r"
    " JOIN batchpay.batch b ON b.id = r.batch WHERE r.id = %(run)s))"
)
FENCE = (
    "UPDATE batchpay.run SET is_live = false, fenced_by = %(by)s, heard_at = %(heard)s"
    " WHERE id = %(run)s AND is_live AND (%(beats)s::bigint IS NULL OR beats = %(beats)s) RETURNING number, mac"
)
SHUT_OUT = "SELECT id, token FROM batchpay.run WHERE batch = %s AND NOT is_live AND finished_at IS NULL"
SET_HEARD = "UPDATE batchpay.run SET heard_at = %s WHERE id = %s AND fenced_by IS NOT NULL AND heard_at IS NULL"
HOSTS_ARE_GONE = (
    "UPDATE batchpay.run SET heard_at = %s WHERE batch = %s AND fenced_by IS NOT NULL AND heard_at IS NULL"
    " RETURNING id, host"
)
SENT_BY_UNHEARD = (
    "SELECT p.row, r.host FROM batchpay.payment p JOIN batchpay.run r ON r.id = p.run WHERE p.batch = %s"
    " AND p.row = ANY(%s::int[]) AND r.fenced_by IS NOT NULL AND r.heard_at IS NULL ORDER BY p.row LIMIT 1"
)
SENDING_OF_RUN = f"SELECT row FROM batchpay.payment WHERE batch = %s AND state = {SENDING} AND run = %s ORDER BY row"
SENDING_OF_DEAD = (
    f"SELECT p.row FROM batchpay.payment p WHERE p.batch = %s AND p.state = {SENDING}"
    " AND NOT coalesce((SELECT r.is_live FROM batchpay.run r WHERE r.id = p.run), false) ORDER BY p.row"
)
FREE_CHUNKS_OF_RUN = "UPDATE batchpay.chunk SET run = NULL WHERE batch = %s AND run = %s"
FREE_CHUNKS_OF_DEAD = (
    "UPDATE batchpay.chunk c SET run = NULL WHERE c.batch = %s AND c.run IS NOT NULL"
    " AND NOT (SELECT r.is_live FROM batchpay.run r WHERE r.id = c.run)"
)
STILL_IN_DOUBT_OF_RUN = (
    f"SELECT 1 FROM batchpay.payment WHERE batch = %s AND row = %s AND state = {IN_DOUBT} AND attempts = %s"
    " AND run = %s FOR UPDATE"
)
# A chunk that no run has, or whose run was shut out between its claim and its next commit. The first one that no other
# run is claiming at this moment, and those that overlap it: rows that were released are between others of the file.
_FREE = (
    "{0}.batch = %(batch)s AND {0}.open_rows > 0 AND ({0}.run IS NULL"
    " OR NOT (SELECT r.is_live FROM batchpay.run r WHERE r.id = {0}.run))"
)
CLAIM_CHUNKS = (
    "UPDATE batchpay.chunk c SET run = %(run)s WHERE c.batch = %(batch)s AND (SELECT r.is_live AND (r.is_leader OR"
    " b.is_shared) FROM batchpay.run r JOIN batchpay.batch b ON b.id = r.batch WHERE r.id = %(run)s) AND c.chunk IN ("
    f"SELECT k.chunk FROM batchpay.chunk k WHERE {_FREE.format('k')} AND k.first_row <= ("
    f"SELECT f.last_row FROM batchpay.chunk f WHERE {_FREE.format('f')} ORDER BY f.first_row, f.chunk LIMIT 1"
    " FOR UPDATE SKIP LOCKED) ORDER BY k.first_row, k.chunk FOR UPDATE SKIP LOCKED)"
    " RETURNING c.chunk, c.first_row, c.last_row"
)
LIVE_RUNS_OF_DIGEST = (
    "SELECT r.host, r.token, b.id, b.name FROM batchpay.run r JOIN batchpay.batch b ON b.id = r.batch"
    " WHERE b.digest = %s AND r.is_live ORDER BY NOT r.is_leader, r.id"
)
SENT = (
    f"SELECT coalesce(sum(row_count) FILTER (WHERE state > {SENDING}), 0)::bigint, coalesce(sum(row_count), 0)::bigint"
    f" FROM batchpay.control_total WHERE batch = %s AND state <> {REJECTED}"
)
BATCHES_AT_WORK = (
    "SELECT b.name FROM batchpay.batch b WHERE b.environment = %s AND EXISTS"
    " (SELECT FROM batchpay.run r WHERE r.batch = b.id AND r.is_live) ORDER BY b.id"
)
RUNS_OF_BATCH = (
    "SELECT id, host, is_leader, is_live, started_at, finished_at, seen_at, stopped, fenced_by IS NOT NULL,"
    " heard_at FROM batchpay.run WHERE batch = %s ORDER BY id"
)
ROWS_BY_RUN = (
    "SELECT run, state, count(*) FROM batchpay.payment WHERE batch = %s AND run IS NOT NULL"
    f" AND state > {SENDING} GROUP BY run, state"
)
