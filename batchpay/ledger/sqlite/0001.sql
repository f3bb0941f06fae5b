-- The ledger, version 1.
-- A row's id is batch * 2^32 + row: rows lie in file order and need no second index. Times are milliseconds since 1970,
-- UTC. States: 2 rejected, 3 pending, 4 sending, 5 accepted, 6 declined, 7 in doubt. All take one byte in the record (0
-- and 1 take none), so a change of state never makes a row longer and never splits a page.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE batch (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    file TEXT NOT NULL,
    origin TEXT NOT NULL,
    columns TEXT NOT NULL,
    options TEXT NOT NULL,
    again_reason TEXT,
    registered_at INTEGER NOT NULL,
    row_count INTEGER NOT NULL CHECK (row_count >= 0),
    cents INTEGER NOT NULL,
    token BLOB CHECK (token IS NULL OR length(token) = 16)
) STRICT;

CREATE INDEX batch_digest ON batch (digest);

-- Rows and cents of a batch by state and direction (0 unknown, 1 debit, 2 credit), kept in step by every transaction.
CREATE TABLE total (
    batch INTEGER NOT NULL REFERENCES batch (id),
    state INTEGER NOT NULL CHECK (state BETWEEN 2 AND 7),
    direction INTEGER NOT NULL CHECK (direction BETWEEN 0 AND 2),
    row_count INTEGER NOT NULL CHECK (row_count >= 0),
    cents INTEGER NOT NULL,
    PRIMARY KEY (batch, state, direction)
) STRICT, WITHOUT ROWID;

CREATE TABLE row (
    id INTEGER PRIMARY KEY,
    line INTEGER,
    amount_cents INTEGER NOT NULL,
    direction INTEGER NOT NULL CHECK (direction BETWEEN 0 AND 2),
    state INTEGER NOT NULL CHECK (state BETWEEN 2 AND 7),
    attempts INTEGER NOT NULL DEFAULT 0,
    chunk INTEGER,
    payee BLOB,
    account BLOB,
    reasons TEXT,
    seal BLOB, -- authenticates line, amount and reasons of a rejected row
    CHECK ((state = 2) = (reasons IS NOT NULL AND seal IS NOT NULL)),
    CHECK (state = 2 OR (chunk IS NOT NULL AND direction > 0))
) STRICT;

CREATE INDEX row_sending ON row (id) WHERE state = 4;

-- The latest attempt of a row. Its state repeats the row's: a row is sent only if both say pending, so that a single
-- damaged byte can't send anything again.
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY REFERENCES row (id),
    state INTEGER NOT NULL CHECK (state BETWEEN 3 AND 7),
    sent_at INTEGER,
    finished_at INTEGER,
    http_status INTEGER,
    response_code TEXT,
    message TEXT,
    gateway_reference TEXT,
    reason TEXT,
    seal BLOB CHECK (seal IS NULL OR length(seal) = 16) -- authenticates what ended the attempt; none while sending
) STRICT;

-- Keyed digests by which payments of earlier batches are found again: the first eight bytes of each, as a number.
CREATE TABLE fingerprint (
    fingerprint INTEGER NOT NULL,
    id INTEGER NOT NULL REFERENCES row (id),
    named INTEGER NOT NULL CHECK (named IN (0, 1)), -- whether the row has a paymentId
    PRIMARY KEY (fingerprint, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE payment_id (
    payment_id INTEGER NOT NULL,
    id INTEGER NOT NULL REFERENCES row (id),
    PRIMARY KEY (payment_id, id)
) STRICT, WITHOUT ROWID;

-- Accepted payments by payee and account (keyed digests), a line a batch: what a changed account is held against.
CREATE TABLE paid (
    payee BLOB NOT NULL,
    account BLOB NOT NULL,
    batch INTEGER NOT NULL REFERENCES batch (id),
    row_count INTEGER NOT NULL CHECK (row_count > 0),
    cents INTEGER NOT NULL,
    PRIMARY KEY (payee, account, batch)
) STRICT, WITHOUT ROWID;

-- A chunk is some hundred rows. Its bodies are erased as soon as none of its rows can be sent any more; its details stay.
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY,
    batch INTEGER NOT NULL REFERENCES batch (id),
    open_rows INTEGER NOT NULL CHECK (open_rows >= 0)
) STRICT;

CREATE TABLE body (
    chunk INTEGER PRIMARY KEY REFERENCES chunk (id),
    sealed BLOB NOT NULL
) STRICT;

CREATE TABLE detail (
    chunk INTEGER PRIMARY KEY REFERENCES chunk (id),
    sealed BLOB NOT NULL
) STRICT;

CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    batch INTEGER NOT NULL REFERENCES batch (id),
    who TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    stopped TEXT
) STRICT;

CREATE INDEX run_batch ON run (batch, id);

-- The history: appended to, never changed, each line authenticated together with the one before it.
CREATE TABLE event (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    batch INTEGER REFERENCES batch (id),
    kind TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT,
    detail TEXT NOT NULL,
    mac BLOB NOT NULL CHECK (length(mac) = 32)
) STRICT;

CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;

CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON event
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;
