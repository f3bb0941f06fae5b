-- Who may sign in. A hash is scrypt's, a code's secret is sealed with the ledger's key.
CREATE TABLE user (
    name TEXT PRIMARY KEY, shown TEXT NOT NULL, hash TEXT NOT NULL, roles TEXT NOT NULL, limit_cents INTEGER,
    totp BLOB, totp_used INTEGER NOT NULL DEFAULT 0, is_off INTEGER NOT NULL DEFAULT 0, made_at REAL NOT NULL
) STRICT;

-- Only the SHA-256 of a session's token is kept.
CREATE TABLE session (
    mark BLOB PRIMARY KEY, person TEXT NOT NULL, made_at REAL NOT NULL, seen_at REAL NOT NULL, how TEXT NOT NULL
) STRICT;

CREATE TABLE failure (who TEXT NOT NULL, at REAL NOT NULL) STRICT;
CREATE INDEX failure_at ON failure (who, at);

-- An uploaded payment file: its state, what its check found, who asked for what. What names payees is sealed.
CREATE TABLE file (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, bytes INTEGER NOT NULL, pieces INTEGER NOT NULL DEFAULT 0, sha256 TEXT,
    uploaded_by TEXT NOT NULL, uploaded_at REAL NOT NULL, edited_by TEXT NOT NULL DEFAULT '[]', state TEXT NOT NULL, told TEXT,
    options TEXT NOT NULL DEFAULT '{}', sheets TEXT, map TEXT, proposal BLOB, before TEXT, difference BLOB,
    facts BLOB, totals TEXT, plan TEXT, seal TEXT, asked_by TEXT, asked_at REAL, note TEXT, batch TEXT, stop_by TEXT, ended_at REAL
) STRICT;
CREATE INDEX file_at ON file (uploaded_at);

-- What should be running. A lock shows whether it is (jobs.py).
CREATE TABLE job (
    id INTEGER PRIMARY KEY, file TEXT NOT NULL, kind TEXT NOT NULL, wanted INTEGER NOT NULL DEFAULT 1,
    starts INTEGER NOT NULL DEFAULT 0, made_by TEXT NOT NULL, made_at REAL NOT NULL, ended_at REAL, exit_code INTEGER
) STRICT;
CREATE INDEX job_of_file ON job (file);

-- What became of a request for approval.
CREATE TABLE decision (
    file TEXT NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, at REAL NOT NULL, why TEXT, seal TEXT
) STRICT;
CREATE INDEX decision_of_file ON decision (file);

-- Rows in doubt that someone wants sent again: a second person must agree. Each is about one attempt of its row.
CREATE TABLE again (
    id INTEGER PRIMARY KEY, batch TEXT NOT NULL, row INTEGER NOT NULL, place TEXT NOT NULL, attempt TEXT NOT NULL,
    who TEXT NOT NULL, at REAL NOT NULL, reason TEXT NOT NULL, state TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX again_asked ON again (batch, row) WHERE state = 'asked';

-- What people did on the page, in addition to what the ledger records.
CREATE TABLE event (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, how TEXT NOT NULL, file TEXT, what TEXT NOT NULL
) STRICT;
CREATE INDEX event_of_file ON event (file);

-- Maps that a person completed, by the header of the files that they are for.
CREATE TABLE map (header TEXT PRIMARY KEY, tables TEXT NOT NULL, made_by TEXT NOT NULL, made_at REAL NOT NULL) STRICT;
