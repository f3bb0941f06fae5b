"""docs/examples/ for schedulers and containers: each is read or run, and what money depends on in it is held."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trustme
import yaml

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


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The documents of a YAML file by kind; of several the last."""
    return {one["kind"]: one for one in yaml.safe_load_all((EXAMPLES / name).read_text("utf-8"))}


CRONJOB = documents("kubernetes-cronjob.yaml")["CronJob"]["spec"]
PAGE = documents("kubernetes-page.yaml")["Deployment"]["spec"]
COMPOSE = yaml.safe_load((EXAMPLES / "compose.yml").read_text("utf-8"))
PODS = {"cronjob": CRONJOB["jobTemplate"]["spec"]["template"]["spec"], "page": PAGE["template"]["spec"]}
BATCHPAY = [name for name, one in COMPOSE["services"].items() if one["image"] == "batchpay"]


def test_nothing_starts_two_runs_or_repeats_one_that_needs_a_person() -> None:
    """One job, one pod, one page at a time; 6 alone makes another pod."""
    assert CRONJOB["concurrencyPolicy"] == "Forbid"
    assert PODS["cronjob"]["restartPolicy"] == "Never"
    (rule,) = CRONJOB["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    codes = {"containerName": "submit", "operator": "NotIn", "values": [6]}
    assert rule == {"action": "FailJob", "onExitCodes": codes}
    assert (PAGE["replicas"], PAGE["strategy"]["type"]) == (1, "Recreate")
    every = yaml.safe_load_all((EXAMPLES / "kubernetes-cronjob.yaml").read_text("utf-8"))
    modes = [one["spec"]["accessModes"] for one in every if one["kind"] == "PersistentVolumeClaim"]
    assert modes == [["ReadWriteOncePod"], ["ReadWriteOncePod"], ["ReadWriteMany"]]
    assert COMPOSE["services"]["submit"]["restart"] == "no" and COMPOSE["services"]["submit"]["profiles"] == ["jobs"]


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_a_pod_can_change_nothing_but_its_volumes(pod: dict[str, Any]) -> None:
    """No root, no rights, a read-only root; the key is a file of a Secret, and the machine has a name."""
    assert pod["automountServiceAccountToken"] is False and pod["terminationGracePeriodSeconds"] > 30
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    volumes = {one["name"]: one for one in pod["volumes"]}
    for container in pod["containers"]:
        locked = container["securityContext"]
        assert locked["readOnlyRootFilesystem"] and not locked["allowPrivilegeEscalation"]
        assert locked["capabilities"] == {"drop": ["ALL"]}
        assert {one["name"] for one in container["volumeMounts"]} <= volumes.keys()
        assert all("valueFrom" not in one for one in container.get("env", ())) and "envFrom" not in container
    environment = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
    assert environment["BATCHPAY_MACHINE"] and "BATCHPAY_API_KEY" not in environment
    mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}
    key = mounts[environment["BATCHPAY_API_KEY_FILE"]]
    assert volumes[key["name"]]["secret"]["defaultMode"] == 0o440 and key["subPath"] == "api-key"
    assert "/etc/batchpay" not in mounts  # a mounted folder can be written by all, and settings in it are refused


def test_the_pages_probes_ask_under_its_own_name() -> None:
    """Any other host is refused by the page: a probe by address would restart it forever."""
    page, nginx = PODS["page"]["containers"]
    host = page["args"][page["args"].index("--host") + 1]
    asked = nginx["readinessProbe"]["httpGet"]
    assert (asked["path"], asked["scheme"]) == ("/healthz", "HTTPS")
    assert asked["httpHeaders"] == [{"name": "Host", "value": host}]
    for command in (page["livenessProbe"]["exec"]["command"], COMPOSE["services"]["page"]["healthcheck"]["test"][1:]):
        compile(command[2], "probe", "exec")
        assert "127.0.0.1:8790/healthz" in command[2] and host in command[2]


@pytest.mark.parametrize("code", EXIT_CODES)
def test_the_jobs_shell_hands_on_the_code(code: int, tmp_path: Path) -> None:
    """3 and 9 are no failure of a job, every other code is its own; SIGTERM reaches the run, which has time to end."""
    program = tmp_path / "batchpay"
    program.write_text(
        f"#!{sys.executable} -S\nimport os, signal\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'told'), os._exit({code})))\n"
        "os.write(1, b'ready\\n')\nwhile True: signal.pause()\n"
    )
    program.chmod(0o700)
    (container,) = PODS["cronjob"]["containers"]
    shell = subprocess.Popen(
        [*container["command"], *container["args"]],
        env={"PATH": f"{tmp_path}:{os.defpath}"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert shell.stdout is not None and shell.stdout.readline() == "ready\n"
    shell.send_signal(signal.SIGTERM)
    assert shell.communicate(timeout=60)[0] == "told"
    assert shell.returncode == (0 if code in (3, 9) else code)
    (line,) = [line for line in container["args"][0].splitlines() if line.startswith("batchpay ")]
    assert shlex.split(line.removesuffix("&")) == ["batchpay", *COMPOSE["services"]["submit"]["command"]]


@pytest.mark.parametrize("name", [*BATCHPAY, "nginx"])
def test_a_container_of_compose_is_locked(name: str) -> None:
    """The same on one machine: read-only, no rights, secrets as files, the ledger over a socket alone."""
    one = COMPOSE["services"][name]
    assert one["read_only"] and one["cap_drop"] == ["ALL"] and one["security_opt"] == ["no-new-privileges:true"]
    assert set(one["secrets"]) <= COMPOSE["secrets"].keys()
    named = {volume.split(":")[0] for volume in one["volumes"] if not volume.startswith(".")}
    assert named <= COMPOSE["volumes"].keys()
    if name != "nginx":
        environment = one["environment"]
        assert environment["BATCHPAY_API_KEY_FILE"] == "/run/secrets/api-key" and "BATCHPAY_API_KEY" not in environment
        assert "host=/run/postgresql" in environment["BATCHPAY_LEDGER"] and environment["BATCHPAY_MACHINE"]
    assert COMPOSE["services"]["postgres"]["network_mode"] == "none"
    assert COMPOSE["services"]["nginx"]["network_mode"] == "service:page"


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_nginx_takes_its_file(authority: trustme.CA, tmp_path: Path) -> None:
    """Nginx itself reads it, and leaves out what a client says of its own address."""
    text = (EXAMPLES / "nginx.conf").read_text("utf-8")
    authority.issue_cert("pay.example.com").private_key_and_cert_chain_pem.write_to_path(tmp_path / "tls.pem")
    for name in ("/run/secrets/tls.crt", "/run/secrets/tls.key"):
        assert name in text
        text = text.replace(name, str(tmp_path / "tls.pem"))
    (tmp_path / "nginx.conf").write_text(text.replace("/tmp/", f"{tmp_path}/"))  # noqa: S108
    done = subprocess.run(["nginx", "-t", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in text and "$proxy_add_x_forwarded_for" not in text


def test_the_image_is_made_of_what_is_here() -> None:
    """Every lock file is installed with hashes, nothing runs as root, and mounted files lie over files of the image."""
    text = (EXAMPLES / "Containerfile").read_text("utf-8")
    steps = dict(re.findall(r"^([A-Z]+) ((?:.*\\\n)*.*)$", text, re.MULTILINE))
    locks = {path.name for path in DOCS.parent.glob("requirements*.lock")}
    assert locks == set(re.findall(r"/install/(requirements[a-z-]*\.lock)", steps["RUN"])) and len(locks) == 3
    assert "--require-hashes" in steps["RUN"] and "uid 10001" in steps["RUN"]
    assert (steps["USER"], steps["ENTRYPOINT"]) == ("batchpay", '["batchpay"]')
    for pod in PODS.values():
        for mount in pod["containers"][0]["volumeMounts"]:
            if "subPath" in mount:
                assert mount["mountPath"] in steps["RUN"].split("touch", 1)[1]
