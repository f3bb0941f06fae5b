-- The ledger, version 5: a row may have a day before which it is not sent, as a number that counts days (1 is the first
-- day of year 1). It stays in the row; the index has only what is still to be sent.

ALTER TABLE row ADD COLUMN pay_on INTEGER;

CREATE INDEX row_scheduled ON row (id >> 32, pay_on, direction, amount_cents) WHERE state = 3 AND pay_on IS NOT NULL;
