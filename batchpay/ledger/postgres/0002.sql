-- The ledger on PostgreSQL, version 2: a row may have a day before which it is not sent, as a number that counts days
-- (1 is the first day of year 1). The index does not name the state, so that no change of it touches one.

ALTER TABLE batchpay.payment ADD COLUMN pay_on integer;

CREATE INDEX payment_scheduled ON batchpay.payment (batch, pay_on) WHERE pay_on IS NOT NULL;

GRANT UPDATE (pay_on) ON batchpay.payment TO batchpay_app;

-- What was sent on a day counts while it may be paid, on the day of the run that sent it. What runs did is in their
-- totals, so that no commit of one waits for another's; here is what others took out of that again.
CREATE TABLE batchpay.day_total (
    environment text NOT NULL,
    day integer NOT NULL,
    direction smallint NOT NULL CHECK (direction BETWEEN 1 AND 2),
    cents bigint NOT NULL,
    PRIMARY KEY (environment, day, direction)
);

CREATE TABLE batchpay.payee_day (
    environment text NOT NULL,
    day integer NOT NULL,
    account bigint NOT NULL,
    cents bigint NOT NULL,
    PRIMARY KEY (environment, day, account)
) WITH (fillfactor = 50);

ALTER TABLE batchpay.run ADD COLUMN day integer;
ALTER TABLE batchpay.payment ADD COLUMN sent_on integer; -- where not the run's day counts, but a later one

CREATE INDEX run_day ON batchpay.run (day);

CREATE VIEW batchpay.sent_on_day AS
    SELECT d.environment, d.day, d.direction, d.cents FROM batchpay.day_total d
    UNION ALL
    SELECT (SELECT b.environment FROM batchpay.batch b WHERE b.id = r.batch), r.day, s.direction::smallint,
        r.totals[14 + 2 * s.direction] + r.totals[20 + 2 * s.direction] + r.totals[32 + 2 * s.direction]
    FROM batchpay.run r CROSS JOIN generate_series(1, 2) AS s (direction);

-- Days whose sums are not those of their rows.
CREATE VIEW batchpay.day_unlike_rows AS
    SELECT day FROM (
        SELECT b.environment, greatest(p.sent_on, r.day) AS day, p.direction, sum(p.amount_cents) AS cents
            FROM batchpay.payment p JOIN batchpay.batch b ON b.id = p.batch LEFT JOIN batchpay.run r ON r.id = p.run
            WHERE p.state IN (4, 5, 7) GROUP BY 1, 2, 3
    ) AS sent FULL JOIN (
        SELECT s.environment, s.day, s.direction, sum(s.cents) AS cents FROM batchpay.sent_on_day s GROUP BY 1, 2, 3
    ) AS kept USING (environment, day, direction)
    WHERE day IS NOT NULL AND coalesce(sent.cents, 0) <> coalesce(kept.cents, 0);

-- What was sent today and is planned, from today on: what is due, and what was registered today without a later day. Not
-- what is pending of one batch.
CREATE FUNCTION batchpay.planned_by_direction(p_environment text, p_today integer, p_begins bigint, p_batch integer)
RETURNS TABLE (day integer, direction integer, cents bigint) LANGUAGE sql STABLE
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.day, s.direction::integer, s.cents FROM batchpay.sent_on_day s
        WHERE s.environment = p_environment AND s.day >= p_today
    UNION ALL
    SELECT p_today, t.direction, t.cents FROM batchpay.batch b CROSS JOIN LATERAL (SELECT * FROM batchpay.control_total c
        WHERE c.batch = b.id AND c.state = 3) AS t
        WHERE b.environment = p_environment AND b.id <> p_batch AND b.registered_at >= p_begins
    UNION ALL
    SELECT u.day, p.direction::integer, u.sign * p.amount_cents
        FROM batchpay.batch b JOIN batchpay.payment p ON p.batch = b.id AND p.state = 3 AND p.pay_on >= p_today
        CROSS JOIN LATERAL (VALUES (p.pay_on, 1), (p_today, -1)) AS u (day, sign)
        WHERE b.environment = p_environment AND b.id <> p_batch AND (u.sign = 1 OR b.registered_at >= p_begins)
$$;

CREATE FUNCTION batchpay.planned_by_account(p_environment text, p_today integer, p_begins bigint, p_batch integer)
RETURNS TABLE (day integer, account bytea, cents bigint) LANGUAGE sql STABLE
SET enable_seqscan = off SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.day, int8send(d.account), d.cents FROM batchpay.payee_day d
        WHERE d.environment = p_environment AND d.day >= p_today
    UNION ALL
    SELECT greatest(p_today, p.pay_on), int8send(p.account), p.amount_cents
        FROM batchpay.batch b JOIN batchpay.payment p ON p.batch = b.id AND p.state = 3
        WHERE b.environment = p_environment AND b.id <> p_batch
            AND (b.registered_at >= p_begins OR p.pay_on >= p_today)
$$;

-- Adds rows to what was sent on their days, or with -1 takes them out. Accounts are always taken in their order: two that
-- count the same ones never wait for each other.
CREATE FUNCTION batchpay.count_on_days(p_batch integer, p_rows integer[], p_sign integer)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_row record;
BEGIN
    -- Whoever has a limit waits here for the others' commits, and then sees all that they have sent.
    PERFORM pg_advisory_xact_lock(7089057378828283248);
    FOR v_row IN
        -- A subquery with a limit can't be turned into a join, which without statistics reads every row.
        SELECT b.environment, p.day, p.direction, p.account, p_sign * sum(p.amount_cents) AS cents
            FROM unnest(p_rows) AS w (row) CROSS JOIN LATERAL (SELECT q.*, greatest(q.sent_on, (SELECT r.day
                FROM batchpay.run r WHERE r.id = q.run)) AS day FROM batchpay.payment q
                WHERE q.batch = p_batch AND q.row = w.row LIMIT 1) AS p
            JOIN batchpay.batch b ON b.id = p_batch
            WHERE p.day IS NOT NULL GROUP BY b.environment, p.day, p.direction, p.account ORDER BY p.day, p.account
    LOOP
        INSERT INTO batchpay.day_total AS d VALUES (v_row.environment, v_row.day, v_row.direction, v_row.cents)
            ON CONFLICT (environment, day, direction) DO UPDATE SET cents = d.cents + excluded.cents;
        INSERT INTO batchpay.payee_day AS d VALUES (v_row.environment, v_row.day, v_row.account, v_row.cents)
            ON CONFLICT (environment, day, account) DO UPDATE SET cents = d.cents + excluded.cents;
    END LOOP;
END $$;

-- Adds up by day what a ledger that moved here had sent.
CREATE FUNCTION batchpay.count_arrived() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO batchpay.day_total SELECT b.environment, p.sent_on, p.direction, sum(p.amount_cents)
        FROM batchpay.payment p JOIN batchpay.batch b ON b.id = p.batch
        WHERE p.sent_on IS NOT NULL AND p.state IN (4, 5, 7) GROUP BY 1, 2, 3;
    INSERT INTO batchpay.payee_day SELECT b.environment, p.sent_on, p.account, sum(p.amount_cents)
        FROM batchpay.payment p JOIN batchpay.batch b ON b.id = p.batch
        WHERE p.sent_on IS NOT NULL AND p.state IN (4, 5, 7) GROUP BY 1, 2, 3;
$$;

-- Counts by account what was just granted and ended (what `commit_group` has returned), and undoes it all where more was
-- sent on the run's day than a limit allows. Without a limit it waits only for those who pay the same accounts.
--   BP008 with the rows of `intents`, more would be sent on the day than a limit allows
CREATE FUNCTION batchpay.within_day(
    p_granted bigint[], p_run integer, p_batch integer, p_intents integer[], p_rows integer[], p_states smallint[],
    p_max_per_day bigint, p_max_per_payee_day bigint
) RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_day integer;
    v_environment text;
    v_full smallint[];
BEGIN
    IF p_max_per_day IS NOT NULL OR p_max_per_payee_day IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock(7089057378828283248);
    END IF;
    SELECT r.day, b.environment INTO v_day, v_environment
        FROM batchpay.run r JOIN batchpay.batch b ON b.id = r.batch WHERE r.id = p_run;
    INSERT INTO batchpay.payee_day AS d
        SELECT v_environment, p.day, p.account, sum(m.sign * p.amount_cents)
            FROM (SELECT i.row, 1 AS sign FROM unnest(p_intents) AS i (row)
                UNION ALL SELECT o.row, -1 FROM unnest(p_rows, p_states) AS o (row, state) WHERE o.state IN (3, 6)) AS m
            CROSS JOIN LATERAL (SELECT q.account, q.amount_cents, greatest(q.sent_on, v_day) AS day
                FROM batchpay.payment q WHERE q.batch = p_batch AND q.row = m.row LIMIT 1) AS p
            GROUP BY p.day, p.account ORDER BY p.day, p.account
        ON CONFLICT (environment, day, account) DO UPDATE SET cents = d.cents + excluded.cents;
    IF p_max_per_day IS NOT NULL THEN
        v_full := ARRAY (SELECT s.direction FROM batchpay.sent_on_day s WHERE s.environment = v_environment
            AND s.day = v_day GROUP BY s.direction HAVING sum(s.cents) > p_max_per_day);
    END IF;
    IF EXISTS (
        SELECT FROM unnest(p_intents) AS i (row) CROSS JOIN LATERAL (SELECT q.account, q.direction
            FROM batchpay.payment q WHERE q.batch = p_batch AND q.row = i.row LIMIT 1) AS p
            WHERE p.direction = ANY (v_full)
                OR (SELECT d.cents FROM batchpay.payee_day d WHERE d.environment = v_environment AND d.day = v_day
                    AND d.account = p.account) > p_max_per_payee_day
    ) THEN
        RAISE EXCEPTION 'over the limit of a day' USING ERRCODE = 'BP008';
    END IF;
    RETURN p_granted;
END $$;

REVOKE ALL ON FUNCTION batchpay.planned_by_direction, batchpay.planned_by_account, batchpay.count_on_days,
    batchpay.count_arrived, batchpay.within_day FROM PUBLIC;
GRANT EXECUTE ON FUNCTION batchpay.planned_by_direction, batchpay.planned_by_account, batchpay.count_on_days,
    batchpay.count_arrived, batchpay.within_day TO batchpay_app;
GRANT SELECT ON batchpay.sent_on_day, batchpay.day_unlike_rows TO batchpay_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON batchpay.day_total, batchpay.payee_day TO batchpay_app;
GRANT UPDATE (sent_on) ON batchpay.payment TO batchpay_app;

-- What banks say of accepted payments, in days and cents as elsewhere: kind 1 came back, 2 is to be corrected. It stays
-- beside the row, whose state is final. `account` is the row's digest in hex digits. `event`, of the ledger's own chain,
-- took it in; `confirmed`, `withdrawn` and `lifted` are those in which a person said more of it. `corrected` is sealed,
-- and purged with details.
CREATE TABLE batchpay.fact (
    number integer PRIMARY KEY,
    batch integer NOT NULL REFERENCES batchpay.batch (id),
    row integer NOT NULL,
    kind smallint NOT NULL CHECK (kind IN (1, 2)),
    code text NOT NULL,
    day integer NOT NULL,
    amount_cents bigint NOT NULL,
    direction smallint NOT NULL CHECK (direction IN (1, 2)),
    account text NOT NULL CHECK (length(account) = 16),
    line integer NOT NULL,
    recurring smallint NOT NULL CHECK (recurring IN (0, 1)),
    unattended smallint NOT NULL CHECK (unattended IN (0, 1)),
    event bigint NOT NULL,
    confirmed bigint,
    withdrawn bigint,
    lifted bigint,
    seal bytea NOT NULL CHECK (length(seal) = 16), -- authenticates all before it
    corrected bytea,
    FOREIGN KEY (batch, row) REFERENCES batchpay.payment (batch, row)
);

CREATE INDEX fact_row ON batchpay.fact (batch, row);
CREATE INDEX fact_account ON batchpay.fact (account);
CREATE UNIQUE INDEX fact_once ON batchpay.fact (batch, row) WHERE kind = 1 AND recurring = 0 AND withdrawn IS NULL;

GRANT SELECT, INSERT ON batchpay.fact TO batchpay_app;
GRANT UPDATE (confirmed, withdrawn, lifted, seal, corrected) ON batchpay.fact TO batchpay_app;
GRANT SELECT (number, batch, row, kind, code, day, amount_cents, direction, account, line, recurring, unattended, event,
    confirmed, withdrawn, lifted, seal) ON batchpay.fact TO batchpay_report;

-- Returns that a person has not withdrawn, of payments that are made once: what came back, and is no payment any more.
CREATE VIEW batchpay.returned AS
    SELECT f.batch, f.row, f.direction, f.amount_cents, f.account, p.payee
    FROM batchpay.fact f JOIN batchpay.payment p ON p.batch = f.batch AND p.row = f.row
    WHERE f.kind = 1 AND f.recurring = 0 AND f.withdrawn IS NULL;

-- What was paid and did not come back; no rows where all of it did.
CREATE VIEW batchpay.kept AS
    SELECT d.payee, d.account, d.batch, (d.row_count - r.row_count)::integer AS row_count, d.cents - r.cents AS cents
    FROM batchpay.paid d CROSS JOIN LATERAL (SELECT count(*) AS row_count, coalesce(sum(b.amount_cents), 0)::bigint AS
        cents FROM batchpay.returned b WHERE b.account = upper(encode(int8send(d.account), 'hex'))
        AND b.batch = d.batch AND b.payee = d.payee) AS r;

-- Facts of no accepted row, or of one that is not what they say, and what a purge should have erased of them.
CREATE VIEW batchpay.fact_unlike_row AS
    SELECT f.number FROM batchpay.fact f LEFT JOIN batchpay.payment p ON p.batch = f.batch AND p.row = f.row
    WHERE p.state IS DISTINCT FROM 5 OR f.account <> upper(encode(int8send(p.account), 'hex'))
        OR f.direction <> p.direction OR (f.kind = 1 AND f.amount_cents <> p.amount_cents)
        OR (f.corrected IS NOT NULL AND EXISTS (SELECT FROM batchpay.event e
            WHERE e.kind = 'purged' AND e.kind <> 'progress' AND e.batch = f.batch));

GRANT SELECT ON batchpay.fact_unlike_row TO batchpay_app;
GRANT SELECT ON batchpay.returned, batchpay.kept TO batchpay_app, batchpay_report;
