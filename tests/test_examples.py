"""docs/examples/ for schedulers and containers: each is read or run, and what money depends on in it is held."""

from __future__ import annotations

import ast
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from batchpay.errors import EXIT_CODES

DOCS = Path(__file__).resolve().parents[1] / "docs"
EXAMPLES = DOCS / "examples"


def stand_in_for_airflow(patch: pytest.MonkeyPatch) -> None:
    """Stand in for Airflow, which needs an environment of its own: the names that the example imports."""
    raised = ("AirflowException", "AirflowFailException", "AirflowSkipException")
    names = {name: type(name, (Exception,), {}) for name in raised}

    class Operator:
        def __init__(self, **options: Any) -> None:
            self.options = options

    class Dag(Operator):
        def __init__(self, name: str, **options: Any) -> None:
            assert (options["catchup"], options["max_active_runs"]) == (False, 1), name

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    for module, members in {
        "airflow": {}, "airflow.sdk": {"DAG": Dag, "BaseOperator": Operator}, "airflow.sdk.exceptions": names,
    }.items():  # fmt: skip
        stand_in = ModuleType(module)
        vars(stand_in).update(members)
        patch.setitem(sys.modules, module, stand_in)


@pytest.fixture
def dag(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the DAG's file, with Airflow itself where that is installed."""
    if not find_spec("airflow"):
        stand_in_for_airflow(monkeypatch)
    names: dict[str, Any] = {"__name__": "airflow_dag"}
    exec(compile((EXAMPLES / "airflow_dag.py").read_text("utf-8"), "airflow_dag.py", "exec"), names)  # noqa: S102
    return names


@pytest.mark.parametrize("code", EXIT_CODES)
def test_a_task_ends_as_the_page_says(
    dag: dict[str, Any], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each exit code leads to success, skip, retry, or a failure that nothing retries: 6 alone is retried."""
    program = tmp_path / "batchpay"
    answer = '{"files": [{"file": "a.csv", "rows": 2, "warning_list": ["a name"]}]}'
    program.write_text(f"#!/bin/sh\necho \"$*\" >'{tmp_path}/called'\necho '{answer}'\nexit {code}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    task = dag["BatchpayOperator"](task_id="submit", arguments=["submit", "a.csv"])
    try:
        told = task.execute({})
    except Exception as error:
        ended = {"AirflowException": "retry", "AirflowSkipException": "skip"}.get(type(error).__name__, "fail")
    else:
        ended = "success"
        assert told == {"exit_code": code, "files": [{"file": "a.csv", "rows": 2}]}
    assert (tmp_path / "called").read_text() == "submit a.csv --json --quiet\n"
    table = re.findall(r"^\| ([0-9, ]+) \| (\w+)(, never retry)? \|", (DOCS / "airflow.md").read_text("utf-8"), re.M)
    said = {int(one): (word, never) for codes, word, never in table for one in codes.split(",")}
    assert said[code] == (ended, ", never retry" if ended == "fail" else "")
    assert said.keys() == EXIT_CODES.keys()


def test_no_task_decides_for_a_person() -> None:
    """The DAG's calls have nothing by which a person decides; a kill asks with SIGTERM and waits."""
    tree = ast.parse((EXAMPLES / "airflow_dag.py").read_text("utf-8"))
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert "--inbox" in words and not words & {"--again", "--release", "--reason", "--yes", "--allow-duplicates"}
    called = [node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "attr")]
    assert called.index("terminate") < called.index("wait") and "kill" not in called
