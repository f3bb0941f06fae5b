-- The ledger, version 5: a row may have a day before which it is not sent, as a number that counts days (1 is the first
-- day of year 1). It stays in the row; the index has only what is still to be sent.

ALTER TABLE row ADD COLUMN pay_on INTEGER;

CREATE INDEX row_scheduled ON row (id >> 32, pay_on, direction, amount_cents) WHERE state = 3 AND pay_on IS NOT NULL;

-- What was sent on a day (a number that counts days), by direction and by account: the run's day, as long as it may be
-- paid.
CREATE TABLE day_total (
    environment TEXT NOT NULL,
    day INTEGER NOT NULL,
    direction INTEGER NOT NULL CHECK (direction BETWEEN 1 AND 2),
    cents INTEGER NOT NULL,
    PRIMARY KEY (environment, day, direction)
) STRICT, WITHOUT ROWID;

CREATE TABLE payee_day (
    environment TEXT NOT NULL,
    day INTEGER NOT NULL,
    account BLOB NOT NULL,
    cents INTEGER NOT NULL,
    PRIMARY KEY (environment, day, account)
) STRICT, WITHOUT ROWID;

ALTER TABLE attempt ADD COLUMN sent_on INTEGER;

-- What banks say of accepted payments, in days and cents as elsewhere: kind 1 came back, 2 is to be corrected. It stays
-- beside the row, whose state is final. `account` is the row's digest in hex digits. `event` took it in; `confirmed`,
-- `withdrawn` and `lifted` are events in which a person said more of it. `corrected` is sealed, and purged with details.
CREATE TABLE fact (
    number INTEGER PRIMARY KEY,
    batch INTEGER NOT NULL REFERENCES batch (id),
    row INTEGER NOT NULL,
    kind INTEGER NOT NULL CHECK (kind IN (1, 2)),
    code TEXT NOT NULL,
    day INTEGER NOT NULL,
    amount_cents INTEGER NOT NULL,
    direction INTEGER NOT NULL CHECK (direction IN (1, 2)),
    account TEXT NOT NULL CHECK (length(account) = 16),
    line INTEGER NOT NULL,
    recurring INTEGER NOT NULL CHECK (recurring IN (0, 1)),
    unattended INTEGER NOT NULL CHECK (unattended IN (0, 1)),
    event INTEGER NOT NULL REFERENCES event (number),
    confirmed INTEGER REFERENCES event (number),
    withdrawn INTEGER REFERENCES event (number),
    lifted INTEGER REFERENCES event (number),
    seal BLOB NOT NULL CHECK (length(seal) = 16), -- authenticates all before it
    corrected BLOB
) STRICT;

CREATE INDEX fact_row ON fact (batch, row);
CREATE INDEX fact_account ON fact (account);
CREATE UNIQUE INDEX fact_once ON fact (batch, row) WHERE kind = 1 AND recurring = 0 AND withdrawn IS NULL;
