-- The ledger, version 3: test and live are two worlds. Batches of a gateway on loopback were rehearsals, others live.

ALTER TABLE batch ADD COLUMN environment TEXT NOT NULL DEFAULT 'live' CHECK (environment IN ('live', 'test'));

UPDATE batch SET environment = 'test'
WHERE origin LIKE 'http://%' OR origin LIKE 'https://localhost%' OR origin LIKE 'https://127.%'
    OR origin LIKE 'https://[::1]%';

-- Digests made before this version are looked up in the form in which they were made, for as long as there are any.
INSERT INTO meta (name, value) SELECT 'latest batch of version 2', cast(max(id) AS TEXT) FROM batch HAVING max(id) > 0;
