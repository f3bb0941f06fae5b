"""docs/examples/ for schedulers and containers: each is read or run, and what money depends on in it is held."""

from __future__ import annotations

import ast
import http.server
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trustme
import yaml

from batchpay.cli.web import web
from batchpay.errors import EXIT_CODES
from batchpay.web.spool import PIECE_BYTES

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


AS_ROOT = "user root;" if os.geteuid() == 0 else ""  # its workers write into the folder of the test


class Behind(http.server.BaseHTTPRequestHandler):
    """Answers with what of a request reaches the page."""

    def do_PUT(self) -> None:
        size = len(self.rfile.read(int(self.headers["Content-Length"])))
        told = f"{size} {self.headers['Host']} {self.headers['X-Forwarded-For']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
@pytest.mark.parametrize(("default", "form"), [(False, 200), (True, 413)])
def test_a_piece_of_a_file_passes_nginx(default: bool, form: int, tmp_path: Path) -> None:
    """By the block in docs/web.md; with nginx's own limit a piece passes too, and a whole file in a form does not."""
    (block,) = re.findall(r"```nginx\n(.*?)```", (DOCS / "web.md").read_text("utf-8"), re.S)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Behind) as behind:
        threading.Thread(target=behind.serve_forever, daemon=True).start()
        socket_path = tmp_path / "nginx.sock"
        block = block.replace("listen 443 ssl", f"listen unix:{socket_path}").replace("8790", str(behind.server_port))
        leave_out = "ssl_|client_max_body_size" if default else "ssl_"
        block = "".join(line for line in block.splitlines(True) if not re.search(leave_out, line))
        places = "".join(f"{one}_temp_path {tmp_path}/{one};" for one in ("proxy", "fastcgi", "uwsgi", "scgi"))
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; {AS_ROOT} pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}} http {{ access_log off; "
            f"client_body_temp_path {tmp_path}/body; {places} {block} }}"
        )
        nginx = subprocess.Popen(["nginx", "-c", tmp_path / "nginx.conf"], stderr=subprocess.DEVNULL)
        try:
            for size, code in ((PIECE_BYTES, 200), (8 << 20, form)):
                while True:
                    assert nginx.poll() is None, (tmp_path / "log").read_text()
                    with suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as to:
                        to.connect(str(socket_path))
                        to.sendall(
                            b"PUT /files/f/pieces/0 HTTP/1.1\r\nHost: pay.example.com\r\nConnection: close\r\n"
                            b"X-Forwarded-For: 203.0.113.9\r\nContent-Length: %d\r\n\r\n" % size
                        )
                        with suppress(BrokenPipeError, ConnectionResetError):  # refused by its length alone
                            to.sendall(bytes(size))
                        with to.makefile("rb") as answer:
                            said = answer.read().decode()
                        break
                assert said.startswith(f"HTTP/1.1 {code} "), said
                if code == 200:
                    assert said.endswith(f"{size} pay.example.com unix:"), "what the client says of itself is replaced"
        finally:
            nginx.terminate()
            nginx.wait()
            behind.shutdown()


def test_the_pages_unit_is_as_locked_as_the_nights(tmp_path: Path) -> None:
    """Its command has options that there are, a stop leaves runs alone, and systemd itself reads it."""
    text = (EXAMPLES / "batchpay-web.service").read_text("utf-8")
    (command,) = re.findall(r"^ExecStart=/opt/batchpay/bin/batchpay web (.*)$", text, re.M)
    assert set(re.findall(r"--[a-z-]+", command)) <= {name for one in web.params for name in one.opts}
    assert "KillMode=process\n" in text and "LoadCredential=api-key:/etc/batchpay/api-key\n" in text
    night = (EXAMPLES / "batchpay.service").read_text("utf-8")
    locks = r"^((?:Protect|Private|Restrict|NoNew|Capab|Lock|SystemCall|UMask|LimitCORE).*)$"
    assert re.findall(locks, text, re.M) == re.findall(locks, night, re.M)
    if shutil.which("systemd-analyze"):
        unit = tmp_path / "batchpay-web.service"
        unit.write_text(text.replace("/opt/batchpay/bin/batchpay", sys.executable).replace("https://", "file:///"))
        done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


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
