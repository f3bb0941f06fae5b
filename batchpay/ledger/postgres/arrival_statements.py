"""Statements run once in a ledger's life, when it arrives from another database (arrival.py), besides table copies."""

EMPTY = """
ALTER TABLE batchpay.event DISABLE TRIGGER USER;
ALTER TABLE batchpay.attempt DISABLE TRIGGER USER;
TRUNCATE batchpay.ledger, batchpay.batch, batchpay.run, batchpay.chunk, batchpay.body, batchpay.detail,
    batchpay.payment, batchpay.attempt, batchpay.event, batchpay.total, batchpay.fingerprint, batchpay.payment_id,
    batchpay.paid RESTART IDENTITY;
ALTER TABLE batchpay.event ENABLE TRIGGER USER;
ALTER TABLE batchpay.attempt ENABLE TRIGGER USER;
"""
ADD_LEDGER = (
    "INSERT INTO batchpay.ledger (id, version, ledger_id, key_id, number, mac, place, registrations,"
    " has_older_digests, is_arriving) VALUES (1, %s, %s, %s, %s, %s, %s, %s, %s, true)"
)
NUMBER_ON = [
    "SELECT setval(pg_get_serial_sequence('batchpay.batch', 'id'), max(id)) FROM batchpay.batch",
    "SELECT setval(pg_get_serial_sequence('batchpay.run', 'id'), max(id)) FROM batchpay.run",
]
STANDING = "SELECT ledger_id, is_arriving FROM batchpay.ledger"
ARRIVED = "SELECT seq, mac, detail FROM batchpay.event WHERE kind = %s AND kind <> 'progress' ORDER BY seq DESC LIMIT 1"
BEGIN = "UPDATE batchpay.ledger SET is_arriving = false"
