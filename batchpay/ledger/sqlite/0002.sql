-- The ledger, version 2: all that seldom happens is found by its kind without reading the whole history. Only `progress`
-- is left out: it is written with every group of payments.

CREATE INDEX event_seldom ON event (kind, batch) WHERE kind <> 'progress';
