"""A change reaches the functions that are loaded: else each would seem to go unnoticed."""

from __future__ import annotations

import gc
import importlib.util
from pathlib import Path

from tests.mutants.exchange import exchange


def test_functions_are_exchanged_that_the_garbage_collector_no_longer_looks_at(tmp_path: Path) -> None:
    """It lists nothing that is frozen, and the tests freeze what they loaded: no change was made, and all survived."""
    file, before, after = tmp_path / "priced.py", "def cents():\n    return 1\n", "def cents():\n    return 2\n"
    file.write_text(before, "utf-8")
    spec = importlib.util.spec_from_file_location("priced", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    gc.freeze()
    try:
        assert exchange(str(file), before, after)
        assert module.cents() == 2
    finally:
        gc.freeze()


def test_a_change_of_what_is_not_loaded_is_not_said_to_be_made(tmp_path: Path) -> None:
    """It is tried in a new process then."""
    assert not exchange(str(tmp_path / "priced.py"), "def cents():\n    return 1\n", "def cents():\n    return 2\n")
