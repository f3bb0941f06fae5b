-- The ledger on PostgreSQL, version 1. Everything lies in a schema of its own, and every name is written out in full, so
-- that no search_path decides what is meant. Times are milliseconds since 1970, UTC. States: 2 rejected, 3 pending,
-- 4 sending, 5 accepted, 6 declined, 7 in doubt; directions: 0 unknown, 1 debit, 2 credit.
-- Batch comes first in every key, so that tables can be cut into ranges of batches later without touching a statement.

-- Whoever sends, and whoever only reads reports, are members of these; logins and passwords are the database's affair.
DO $$
DECLARE
    v_name text;
BEGIN
    FOREACH v_name IN ARRAY ARRAY['batchpay_app', 'batchpay_report'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = v_name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', v_name);
        END IF;
    END LOOP;
END $$;

CREATE SCHEMA batchpay;

-- One row: who this ledger is, and the head of its own chain of events. All that seldom happens locks it, so whoever
-- holds it knows what was registered and released before.
CREATE TABLE batchpay.ledger (
    id smallint PRIMARY KEY CHECK (id = 1),
    version integer NOT NULL,
    ledger_id text NOT NULL,
    key_id text NOT NULL,
    number bigint NOT NULL,
    mac bytea NOT NULL CHECK (length(mac) = 32),
    registrations bigint NOT NULL DEFAULT 0,
    place text NOT NULL, -- server, timeline, database, table, and each address where a person accepted it, a line each
    epoch integer NOT NULL DEFAULT 1, -- restores that a person accepted, and one
    behind text, -- a machine that knows events which are not here: nobody sends before a person has said so
    has_older_digests boolean NOT NULL DEFAULT false, -- payments that came from a ledger of before version 3
    is_arriving boolean NOT NULL DEFAULT false -- a copy of a ledger that is in force elsewhere
) WITH (fillfactor = 10);

CREATE TABLE batchpay.batch (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    file text NOT NULL,
    origin text NOT NULL,
    columns text NOT NULL,
    options text NOT NULL,
    registered_at bigint NOT NULL,
    again_reason text,
    environment text NOT NULL CHECK (environment IN ('live', 'test')),
    row_count integer NOT NULL DEFAULT 0 CHECK (row_count >= 0),
    cents bigint NOT NULL DEFAULT 0,
    registration bigint NOT NULL DEFAULT 0 -- which of the ledger's registrations and releases was its latest
);

-- Two machines that submit one file at the same moment make one batch: the second waits here, and is then refused.
CREATE UNIQUE INDEX batch_once ON batchpay.batch (digest, environment) WHERE again_reason IS NULL;
CREATE UNIQUE INDEX batch_again ON batchpay.batch (digest, environment, lower(again_reason))
    WHERE again_reason IS NOT NULL;

-- A run is one program's work on one batch, which has one at a time. It alone writes its row: that is its fence, its
-- heartbeat, the head of its chain of events, and what it added to the control totals, in one update that touches no
-- index. Others only fence it. `seen_at`, by this server's clock, says how old a heartbeat is: nobody is fenced by it.
CREATE TABLE batchpay.run (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch integer NOT NULL REFERENCES batchpay.batch (id),
    who text NOT NULL,
    host text NOT NULL,
    started_at bigint NOT NULL,
    finished_at bigint,
    stopped text,
    token bytea NOT NULL CHECK (length(token) = 16),
    generation integer NOT NULL DEFAULT 1,
    beats bigint NOT NULL DEFAULT 0,
    seen_at bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    is_live boolean NOT NULL DEFAULT false,
    is_fenced boolean NOT NULL DEFAULT false,
    heard_at bigint, -- since it was fenced it has ended, and sends nothing any more
    number bigint NOT NULL DEFAULT 0,
    mac bytea NOT NULL CHECK (length(mac) = 32),
    totals bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[36]) CHECK (array_length(totals, 1) = 36)
) WITH (fillfactor = 20);

CREATE INDEX run_batch ON batchpay.run (batch, id);
CREATE UNIQUE INDEX run_live ON batchpay.run (batch) WHERE is_live;

CREATE TABLE batchpay.chunk (
    batch integer NOT NULL REFERENCES batchpay.batch (id),
    chunk integer NOT NULL,
    open_rows integer NOT NULL CHECK (open_rows >= 0),
    PRIMARY KEY (batch, chunk)
) WITH (fillfactor = 50);

-- Sealed and compressed already. Bodies are erased as soon as no row of their chunk can be sent any more.
CREATE TABLE batchpay.body (
    batch integer NOT NULL,
    chunk integer NOT NULL,
    sealed bytea NOT NULL,
    PRIMARY KEY (batch, chunk),
    FOREIGN KEY (batch, chunk) REFERENCES batchpay.chunk (batch, chunk)
);

CREATE TABLE batchpay.detail (
    batch integer NOT NULL,
    chunk integer NOT NULL,
    sealed bytea NOT NULL,
    PRIMARY KEY (batch, chunk),
    FOREIGN KEY (batch, chunk) REFERENCES batchpay.chunk (batch, chunk)
);

ALTER TABLE batchpay.body ALTER COLUMN sealed SET STORAGE EXTERNAL;
ALTER TABLE batchpay.detail ALTER COLUMN sealed SET STORAGE EXTERNAL;

-- The wide columns first: 8 bytes less a row. No index names the state, so that no change of it touches one. What is
-- written with every payment has no foreign key: each would lock the row that it refers to; the check looks instead.
CREATE TABLE batchpay.payment (
    amount_cents bigint NOT NULL,
    payee bigint,
    account bigint,
    sent_at bigint,
    batch integer NOT NULL,
    row integer NOT NULL CHECK (row > 0),
    line integer,
    chunk integer,
    run integer,
    state smallint NOT NULL CHECK (state BETWEEN 2 AND 7),
    attempts smallint NOT NULL DEFAULT 0,
    direction smallint NOT NULL CHECK (direction BETWEEN 0 AND 2),
    reasons text,
    seal bytea, -- authenticates line, amount and reasons of a rejected row
    PRIMARY KEY (batch, row),
    CHECK ((state = 2) = (reasons IS NOT NULL AND seal IS NOT NULL)),
    CHECK (state = 2 OR (chunk IS NOT NULL AND direction > 0 AND payee IS NOT NULL AND account IS NOT NULL))
) WITH (fillfactor = 50);

-- How each attempt ended, kept for good. The latest one's state repeats the row's: a row is sent only if both say
-- pending, so that a single damaged byte can't send anything again.
CREATE TABLE batchpay.attempt (
    batch integer NOT NULL,
    row integer NOT NULL,
    attempt smallint NOT NULL,
    run integer,
    state smallint NOT NULL CHECK (state IN (3, 5, 6, 7)),
    sent_at bigint,
    finished_at bigint,
    http_status integer,
    response_code text,
    message text,
    gateway_reference text,
    reason text,
    seal bytea NOT NULL CHECK (length(seal) = 16), -- authenticates what ended the attempt
    PRIMARY KEY (batch, row, attempt)
);

-- The gateway's reference belongs to one payment, so another one that has it is found at once.
CREATE INDEX attempt_reference ON batchpay.attempt (gateway_reference) WHERE gateway_reference IS NOT NULL;

-- The history: appended to, never changed. Chain 0 is the ledger's own, every run has one by its id; each event is
-- authenticated together with the one before it in its chain. `seq` is drawn after the rows are locked, so it brings
-- the events of all chains that moved one row into their true order.
CREATE TABLE batchpay.event (
    chain integer NOT NULL,
    number bigint NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    at bigint NOT NULL,
    batch integer,
    kind text NOT NULL,
    who text NOT NULL,
    why text,
    detail text NOT NULL,
    mac bytea NOT NULL CHECK (length(mac) = 32),
    PRIMARY KEY (chain, number)
);

CREATE INDEX event_seldom ON batchpay.event (kind, batch) WHERE kind <> 'progress';
CREATE INDEX event_batch ON batchpay.event (batch, seq) WHERE kind <> 'progress';

-- What registration, release and persons' decisions added; what runs did stands in run.totals.
CREATE TABLE batchpay.total (
    batch integer NOT NULL REFERENCES batchpay.batch (id),
    state smallint NOT NULL CHECK (state BETWEEN 2 AND 7),
    direction smallint NOT NULL CHECK (direction BETWEEN 0 AND 2),
    row_count integer NOT NULL,
    cents bigint NOT NULL,
    PRIMARY KEY (batch, state, direction)
);

-- The control totals of every batch, as they stand now.
CREATE VIEW batchpay.control_total AS
    SELECT batch, state, direction, sum(row_count)::bigint AS row_count, sum(cents)::bigint AS cents
    FROM (
        SELECT t.batch, t.state::integer, t.direction::integer, t.row_count::bigint, t.cents FROM batchpay.total t
        UNION ALL
        SELECT r.batch, (2 + (u.place - 1) / 6)::integer, ((u.place - 1) / 2 % 3)::integer,
            CASE u.place % 2 WHEN 1 THEN u.added ELSE 0 END, CASE u.place % 2 WHEN 0 THEN u.added ELSE 0 END
        FROM batchpay.run r, unnest(r.totals) WITH ORDINALITY AS u (added, place)
        WHERE u.added <> 0
    ) AS parts (batch, state, direction, row_count, cents)
    GROUP BY batch, state, direction;

-- Keyed digests by which payments of earlier batches are found again: the first eight bytes of each, as a number.
CREATE TABLE batchpay.fingerprint (
    fingerprint bigint NOT NULL,
    batch integer NOT NULL,
    row integer NOT NULL,
    named boolean NOT NULL -- whether the row has a paymentId
);
CREATE INDEX fingerprint_number ON batchpay.fingerprint (fingerprint);
CREATE INDEX fingerprint_batch ON batchpay.fingerprint USING brin (batch);

CREATE TABLE batchpay.payment_id (
    payment_id bigint NOT NULL,
    batch integer NOT NULL,
    row integer NOT NULL
);
CREATE INDEX payment_id_number ON batchpay.payment_id (payment_id);
CREATE INDEX payment_id_batch ON batchpay.payment_id USING brin (batch);

-- Accepted payments by payee and account (keyed digests), a line a batch: what a changed account is held against.
CREATE TABLE batchpay.paid (
    payee bigint NOT NULL,
    account bigint NOT NULL,
    batch integer NOT NULL REFERENCES batchpay.batch (id),
    row_count integer NOT NULL CHECK (row_count > 0),
    cents bigint NOT NULL,
    PRIMARY KEY (payee, account, batch)
);

-- Until when a gateway (environment and origin) asked one of its runs to wait, in seconds of this server's clock: nobody
-- may send before `free_at`. Nothing durable: it is not logged, and empty after a crash.
CREATE UNLOGGED TABLE batchpay.pace (
    gateway text PRIMARY KEY,
    free_at double precision NOT NULL
) WITH (fillfactor = 10);

-- What was found of gateways' limits, on whichever machine: where the next run begins.
CREATE TABLE batchpay.known_limit (
    gateway text PRIMARY KEY,
    rate double precision NOT NULL,
    window_s double precision
);

CREATE FUNCTION batchpay.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'never changed, never deleted' USING ERRCODE = 'BP005';
END $$;

CREATE TRIGGER event_is_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON batchpay.event
    FOR EACH STATEMENT EXECUTE FUNCTION batchpay.refuse();
CREATE TRIGGER attempt_is_never_deleted BEFORE DELETE OR TRUNCATE ON batchpay.attempt
    FOR EACH STATEMENT EXECUTE FUNCTION batchpay.refuse();

-- One group of a run: outcomes of rows being sent, then intents to send, all or nothing, in one round trip. Who gets a
-- clean answer may send the rows of `intents`, and nobody else may. The caller gives every row, in order of its number,
-- and gets the numbers of the attempts of `intents`, and the event's place in the history.
--   BP001 a row of `intents` is not pending, or its latest attempt says otherwise
--   BP002 commits of this session are not durable
--   BP003 the run was fenced, its connection was given up, or its chain went on without it
--   BP004 a row of `rows` is not being sent by this run
--   BP006 a machine knows events that this ledger has lost
CREATE FUNCTION batchpay.commit_group(
    p_run integer, p_token bytea, p_generation integer, p_batch integer,
    p_intents integer[], p_rows integer[], p_states smallint[], p_statuses integer[], p_codes text[],
    p_messages text[], p_references text[], p_reasons text[], p_seals bytea[],
    p_at bigint, p_number bigint, p_who text, p_detail text, p_mac bytea
) RETURNS bigint[] LANGUAGE plpgsql
-- A pooler knows no settings of a session.
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_totals bigint[];
    v_group record;
    v_count integer;
    v_granted bigint[];
    v_at integer;
    v_seq bigint;
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        RAISE EXCEPTION 'commits are not durable' USING ERRCODE = 'BP002';
    END IF;
    IF (SELECT l.behind FROM batchpay.ledger l WHERE l.id = 1) IS NOT NULL THEN
        RAISE EXCEPTION 'behind' USING ERRCODE = 'BP006';
    END IF;
    SELECT r.totals INTO v_totals FROM batchpay.run r
        WHERE r.id = p_run AND r.token = p_token AND r.generation = p_generation AND r.is_live
            AND r.number = p_number - 1
        FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'fenced' USING ERRCODE = 'BP003';
    END IF;

    IF cardinality(p_rows) > 0 THEN
        v_count := 0;
        FOR v_group IN
            WITH o AS (
                SELECT * FROM unnest(p_rows, p_states, p_statuses, p_codes, p_messages, p_references, p_reasons, p_seals)
                    AS o (row, state, http_status, response_code, message, gateway_reference, reason, seal)
            ), moved AS (
                UPDATE batchpay.payment p SET state = o.state FROM o
                    WHERE p.batch = p_batch AND p.row = o.row AND p.state = 4 AND p.run = p_run
                    RETURNING p.row, p.chunk, p.direction, p.amount_cents, p.attempts, p.sent_at, o.state,
                        o.http_status, o.response_code, o.message, o.gateway_reference, o.reason, o.seal
            ), noted AS (
                INSERT INTO batchpay.attempt (batch, row, attempt, run, state, sent_at, finished_at, http_status,
                        response_code, message, gateway_reference, reason, seal)
                    SELECT p_batch, m.row, m.attempts, p_run, m.state, m.sent_at, p_at, m.http_status, m.response_code,
                        m.message, m.gateway_reference, m.reason, m.seal FROM moved m
            )
            SELECT m.state, m.direction, m.chunk, count(*)::integer AS row_count, sum(m.amount_cents)::bigint AS cents
                FROM moved m GROUP BY m.state, m.direction, m.chunk ORDER BY m.chunk
        LOOP
            v_count := v_count + v_group.row_count;
            v_at := 2 * (3 * (4 - 2) + v_group.direction);
            v_totals[v_at + 1] := v_totals[v_at + 1] - v_group.row_count;
            v_totals[v_at + 2] := v_totals[v_at + 2] - v_group.cents;
            v_at := 2 * (3 * (v_group.state - 2) + v_group.direction);
            v_totals[v_at + 1] := v_totals[v_at + 1] + v_group.row_count;
            v_totals[v_at + 2] := v_totals[v_at + 2] + v_group.cents;
            IF v_group.state IN (5, 6) THEN
                UPDATE batchpay.chunk c SET open_rows = c.open_rows - v_group.row_count
                    WHERE c.batch = p_batch AND c.chunk = v_group.chunk;
                DELETE FROM batchpay.body b WHERE b.batch = p_batch AND b.chunk = v_group.chunk
                    AND (SELECT c.open_rows FROM batchpay.chunk c
                        WHERE c.batch = p_batch AND c.chunk = v_group.chunk) = 0;
            END IF;
        END LOOP;
        IF v_count <> cardinality(p_rows) THEN
            RAISE EXCEPTION 'not being sent' USING ERRCODE = 'BP004';
        END IF;
    END IF;

    v_granted := array_fill(0::bigint, ARRAY[cardinality(p_intents)]);
    IF cardinality(p_intents) > 0 THEN
        v_count := 0;
        -- Subqueries on a whole key can't be turned into joins: without statistics a join read every attempt so far.
        FOR v_group IN
            UPDATE batchpay.payment p SET state = 4, attempts = p.attempts + 1, run = p_run, sent_at = p_at
                WHERE p.batch = p_batch AND p.row = ANY (p_intents) AND p.state = 3
                    AND coalesce((SELECT a.state FROM batchpay.attempt a WHERE a.batch = p_batch AND a.row = p.row
                        ORDER BY a.attempt DESC LIMIT 1), 3) = 3
                RETURNING p.row, p.attempts, p.direction, p.amount_cents
        LOOP
            v_count := v_count + 1;
            v_granted[array_position(p_intents, v_group.row)] := v_group.attempts;
            v_at := 2 * (3 * (3 - 2) + v_group.direction);
            v_totals[v_at + 1] := v_totals[v_at + 1] - 1;
            v_totals[v_at + 2] := v_totals[v_at + 2] - v_group.amount_cents;
            v_at := 2 * (3 * (4 - 2) + v_group.direction);
            v_totals[v_at + 1] := v_totals[v_at + 1] + 1;
            v_totals[v_at + 2] := v_totals[v_at + 2] + v_group.amount_cents;
        END LOOP;
        IF v_count <> cardinality(p_intents) THEN
            RAISE EXCEPTION 'not pending' USING ERRCODE = 'BP001';
        END IF;
    END IF;

    UPDATE batchpay.run r SET beats = r.beats + 1, seen_at = extract(epoch FROM clock_timestamp()) * 1000,
            number = p_number, mac = p_mac, totals = v_totals
        WHERE r.id = p_run;
    INSERT INTO batchpay.event (chain, number, at, batch, kind, who, detail, mac)
        VALUES (p_run, p_number, p_at, p_batch, 'progress', p_who, p_detail, p_mac) RETURNING seq INTO v_seq;
    RETURN v_granted || v_seq;
END $$;

REVOKE ALL ON FUNCTION batchpay.commit_group FROM PUBLIC;

-- A group of a run, as `commit_group`, in whose accepted rows no reference is that of another row of the environment.
-- One that was masked or cut may be that of several payments.
--   BP007 an accepted row has the reference of another row
CREATE FUNCTION batchpay.commit_unique_group(
    p_run integer, p_token bytea, p_generation integer, p_batch integer,
    p_intents integer[], p_rows integer[], p_states smallint[], p_statuses integer[], p_codes text[],
    p_messages text[], p_references text[], p_reasons text[], p_seals bytea[],
    p_at bigint, p_number bigint, p_who text, p_detail text, p_mac bytea
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A subquery with a limit can't be turned into a join, which without statistics read every attempt so far.
    IF EXISTS (
        SELECT FROM unnest(p_rows, p_states, p_references) AS o (row, state, reference)
            WHERE o.state = 5 AND o.reference NOT LIKE '%****%' AND o.reference NOT LIKE '%…' AND (
                SELECT true FROM batchpay.attempt a
                    WHERE a.gateway_reference = o.reference AND (a.batch, a.row) <> (p_batch, o.row)
                        AND (SELECT b.environment FROM batchpay.batch b WHERE b.id = a.batch)
                            = (SELECT b.environment FROM batchpay.batch b WHERE b.id = p_batch)
                    LIMIT 1)
    ) THEN
        RAISE EXCEPTION 'repeated' USING ERRCODE = 'BP007';
    END IF;
    RETURN batchpay.commit_group(p_run, p_token, p_generation, p_batch, p_intents, p_rows, p_states, p_statuses,
        p_codes, p_messages, p_references, p_reasons, p_seals, p_at, p_number, p_who, p_detail, p_mac);
END $$;

REVOKE ALL ON FUNCTION batchpay.commit_unique_group FROM PUBLIC;

-- Least rights. Whoever sends is a member of batchpay_app: it can't change an amount, a digest or what has happened.
-- Whoever only reads reports is a member of batchpay_report, which sees no sealed text.
GRANT USAGE ON SCHEMA batchpay TO batchpay_app, batchpay_report;
GRANT SELECT ON ALL TABLES IN SCHEMA batchpay TO batchpay_app;
GRANT SELECT ON batchpay.ledger, batchpay.batch, batchpay.chunk, batchpay.payment, batchpay.attempt, batchpay.event,
    batchpay.total, batchpay.control_total, batchpay.paid TO batchpay_report;
GRANT SELECT (id, batch, who, host, started_at, finished_at, stopped, beats, seen_at, is_live, is_fenced,
    heard_at) ON batchpay.run TO batchpay_report;
GRANT INSERT ON batchpay.batch, batchpay.run, batchpay.chunk, batchpay.body, batchpay.detail, batchpay.payment,
    batchpay.attempt, batchpay.event, batchpay.total, batchpay.fingerprint, batchpay.payment_id, batchpay.paid
    TO batchpay_app;
GRANT UPDATE (number, mac, registrations, place, epoch, behind) ON batchpay.ledger TO batchpay_app;
GRANT UPDATE (origin, row_count, cents, registration) ON batchpay.batch TO batchpay_app;
GRANT UPDATE (finished_at, stopped, generation, beats, seen_at, is_live, is_fenced, heard_at, number, mac, totals)
    ON batchpay.run TO batchpay_app;
GRANT UPDATE (open_rows) ON batchpay.chunk TO batchpay_app;
GRANT UPDATE (state, attempts, run, sent_at, reasons, seal, direction, chunk, payee, account)
    ON batchpay.payment TO batchpay_app;
GRANT UPDATE (state, finished_at, http_status, response_code, message, gateway_reference, reason, seal)
    ON batchpay.attempt TO batchpay_app;
GRANT UPDATE (row_count, cents) ON batchpay.total TO batchpay_app;
GRANT UPDATE (row_count, cents) ON batchpay.paid TO batchpay_app;
GRANT DELETE ON batchpay.body, batchpay.detail TO batchpay_app;
GRANT EXECUTE ON FUNCTION batchpay.commit_group TO batchpay_app;
GRANT EXECUTE ON FUNCTION batchpay.commit_unique_group TO batchpay_app;
GRANT INSERT, UPDATE, DELETE ON batchpay.pace, batchpay.known_limit TO batchpay_app;
