"""Campaigns: what kills, errors, restores and races do to a run, counted by a process that only counts."""
