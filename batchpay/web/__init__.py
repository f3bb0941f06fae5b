"""The page for finance people: a thin reader of the ledger, whose heavy work is done by children (job.py)."""
