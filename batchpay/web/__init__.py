"""The page for finance people: a thin reader of the ledger; child processes do its heavy work (jobs.py)."""
