"""A run's threads keep to one core, and the thread that asked for it is afterwards as it was."""

from __future__ import annotations

import os

import pytest

from batchpay.sending.one_core import on_one_core


def place() -> tuple[set[int], int]:
    return os.sched_getaffinity(0), os.sched_getscheduler(0)


@pytest.mark.parametrize(("workers", "policy"), [(15, os.SCHED_OTHER), (16, os.SCHED_BATCH)])
def test_while_a_run_sends(workers: int, policy: int) -> None:
    """One core; of many workers none interrupts another. Whatever ends the run, both are given back."""
    before = place()
    with pytest.raises(KeyboardInterrupt), on_one_core(workers):
        within = place()
        raise KeyboardInterrupt
    assert within == ({max(before[0])}, policy)
    assert place() == before


def test_a_run_keeps_to_the_cores_that_it_may_use() -> None:
    """An administrator gave it one core (taskset, a container): the others belong to somebody else."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with on_one_core(1):
            within, _ = place()
        after, _ = place()
    finally:
        os.sched_setaffinity(0, before)
    assert within == after == {min(before)}


def test_where_the_system_has_no_such_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS a run goes on as it is."""
    monkeypatch.delattr(os, "sched_setaffinity")
    before = place()
    with on_one_core(16):
        assert place() == before
