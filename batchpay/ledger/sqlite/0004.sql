-- The ledger, version 4: the gateway's reference belongs to one payment, so another one that has it is found at once.

CREATE INDEX attempt_reference ON attempt (gateway_reference) WHERE gateway_reference IS NOT NULL;
