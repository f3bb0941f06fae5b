-- The ledger, version 5: a row may have a day before which it is not sent, as a number that counts days (1 is the first
-- day of year 1). It stays in the row; the index has only what is still to be sent.

ALTER TABLE row ADD COLUMN pay_on INTEGER;

CREATE INDEX row_scheduled ON row (id >> 32, pay_on, direction, amount_cents) WHERE state = 3 AND pay_on IS NOT NULL;

-- What was sent on a day (a number that counts days), by direction, and while there is a limit for one account by
-- account: the run's day, as long as it may be paid.
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
