-- The ledger on PostgreSQL, version 2: a row may have a day before which it is not sent, as a number that counts days
-- (1 is the first day of year 1). The index does not name the state, so that no change of it touches one.

ALTER TABLE batchpay.payment ADD COLUMN pay_on integer;

CREATE INDEX payment_scheduled ON batchpay.payment (batch, pay_on) WHERE pay_on IS NOT NULL;

GRANT UPDATE (pay_on) ON batchpay.payment TO batchpay_app;
