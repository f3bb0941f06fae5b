"""docs/examples/alerts.yml on the metrics of real runs: each alert fires when it should, and goes when it should.

A small stand-in for promtool reads the expressions that the file uses; one that it can't read is an error. Where
promtool is installed it judges the same metrics at the same moments.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command import small_file
from tests.support.in_process import Caller
from tests.support.sandbox_requests import control

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
RULES: dict[str, str] = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((EXAMPLES / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
}
TERM = re.compile(r'(time\(\) - )?(batchpay_[a-z_]+)(?:\{([a-z_]+)="([^"]*)"\})? (==|>) ([0-9]+)')
SAMPLE = re.compile(r"(batchpay_[a-z_]+)(?:\{(.*)\})? ([0-9.]+)")
HOUR_S = 3_600.0
Sample = tuple[str, dict[str, str], float]
OF_HEALTH = {"PaymentsNeedAPerson", "PaymentsNobodyLooks"}
"""Alerts of the metrics that batchpay-health.sh writes."""


def samples(*files: Path) -> list[Sample]:
    found = []
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            if not line.startswith("#"):
                match = SAMPLE.fullmatch(line)
                assert match, line
                labels = dict(re.findall(r'([a-z_]+)="([^"]*)"', match[2] or ""))
                found.append((match[1], labels, float(match[3])))
    return found


def firing(metrics: list[Sample], after_s: float = 0) -> set[str]:
    """Name the alerts that fire so long after now."""
    now = time.time() + after_s

    def holds(text: str) -> bool:
        match = TERM.fullmatch(text)
        assert match, text
        since, name, label, wanted, comparison, limit = match.groups()
        values = [value for one, labels, value in metrics if one == name and (not label or labels.get(label) == wanted)]
        values = [now - value if since else value for value in values]
        return any(value == float(limit) if comparison == "==" else value > float(limit) for value in values)

    return {
        name
        for name, rule in RULES.items()
        if any(all(holds(term) for term in way.split(" and ")) for way in rule.split(" or "))
    }


def require_promtool_agrees(cases: list[tuple[list[Sample], float, set[str]]], folder: Path) -> None:
    """Have promtool judge the metrics of each case, so many seconds later, if it is installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    start = 240 * HOUR_S  # promtool's clock begins at 0, so the moments in the metrics are moved
    moved = start - time.time()
    tests = []
    for metrics, after_s, names in cases:
        series = []
        for name, labels, value in metrics:
            shown = value + moved if name.endswith("_timestamp_seconds") and value else value
            inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
            series.append({"series": f"{name}{{{inside}}}", "values": f"{shown:.0f}+0x480"})
        found = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]
        asked = {
            "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{start + after_s:.0f}s",
            "exp_samples": found,
        }
        tests.append({"interval": "1h", "input_series": series, "promql_expr_test": [asked]})
    file = folder / "promtool.yml"
    rules = {"rule_files": [str(EXAMPLES / "alerts.yml")], "evaluation_interval": "1h", "tests": tests}
    file.write_text(yaml.safe_dump(rules), "utf-8")
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_reads_the_rules() -> None:
    subprocess.run([shutil.which("promtool") or "", "check", "rules", str(EXAMPLES / "alerts.yml")], check=True)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    """An inbox, and beside it the metrics of the night."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def night(call: Caller, inbox: Path) -> list[Sample]:
    """The nightly call, and the metrics that it leaves."""
    call("submit", "--inbox", str(inbox), "--archive", "done", "--out", "out", "--metrics-file", "night.prom")
    return samples(Path("night.prom"))


def upload(inbox: Path, name: str, first: int, rows: int = 2, said: int | None = None) -> None:
    small_file(inbox / name, rows, first=first)
    (inbox / f"{name}.control.toml").write_text(f"rows = {said or rows}\n")


def test_alerts_fire_and_resolve(call: Caller, inbox: Path, url: str, tmp_path: Path) -> None:
    """A good night, a doubt that is settled, a refused file, refused credentials, an unusable ledger, no run at all."""
    cases: list[tuple[list[Sample], float, set[str]]] = []

    def fired(metrics: list[Sample], after_s: float = 0) -> set[str]:
        found = firing(metrics, after_s)
        cases.append((metrics, after_s, found))
        return found

    upload(inbox, "a.csv", 1)
    good = night(call, inbox)
    assert fired(good) == set()
    assert fired(good, 99 * HOUR_S) == set()
    assert fired(good, 101 * HOUR_S) == {"PaymentsNotCompleted"}

    control(url, "POST", "faults", [{"fault": "silent", "at": 1}])
    upload(inbox, "b.csv", 10, rows=1)
    doubt = night(call, inbox)
    assert fired(doubt) == {"PaymentsInDoubt"}
    assert fired(doubt, 25 * HOUR_S) == {"PaymentsInDoubt", "PaymentsInDoubtForADay"}
    (batch,) = [one["batch"] for one in call("status")["batches"] if one["in_doubt"]]
    signed = ("--name", "Ann Clerk", "--reason", "in the portal", "--yes")
    call("resolve", batch, "--row", "1", "--decision", "accepted", "--reference", "884213", *signed)
    assert fired(night(call, inbox), 25 * HOUR_S) == set()

    upload(inbox, "c.csv", 20, said=3)
    assert fired(night(call, inbox)) == {"PaymentsCallFailed"}
    (inbox / "c.csv.control.toml").write_text("rows = 2\n")
    assert fired(night(call, inbox)) == set()

    upload(inbox, "d.csv", 30)
    control(url, "POST", "faults", [{"fault": "status", "status": 401}])
    waiting = night(call, inbox)
    assert fired(waiting) == set()
    assert fired(waiting, 7 * HOUR_S) == {"PaymentsWaiting"}
    since = [value for name, _, value in waiting if name == "batchpay_oldest_waiting_timestamp_seconds"]
    later = night(call, inbox)
    assert [value for name, _, value in later if name == "batchpay_oldest_waiting_timestamp_seconds"] == since, (
        "with a call each half hour that sends nothing, the alert never fired"
    )
    control(url, "POST", "faults", [])
    assert fired(night(call, inbox), 7 * HOUR_S) == set()

    Path("not-a-ledger").write_text("nothing of ours")
    call.settings(BATCHPAY_LEDGER="not-a-ledger")
    assert call.fails("submit", "--inbox", "nowhere", "--metrics-file", "night.prom") == 5
    assert fired(samples(Path("night.prom"))) == {"PaymentsLedgerNotReadable", "PaymentsCallFailed"}
    assert set().union(*(names for _, _, names in cases)) == set(RULES) - OF_HEALTH
    require_promtool_agrees(cases, tmp_path)


def test_health_as_a_metric(call: Caller, inbox: Path, tmp_path: Path) -> None:
    """batchpay-health.sh leaves health's exit code: 6 for an overdue backup fires, 0 is quiet until nobody looks."""
    upload(inbox, "a.csv", 1)
    night(call, inbox)
    script = (EXAMPLES / "batchpay-health.sh").read_text("utf-8")
    for there, here in {
        "/opt/batchpay/bin/batchpay": f"{sys.executable} -m batchpay",
        "--config /etc/batchpay/batchpay.toml ": "",
        "/var/lib/batchpay/metrics": str(tmp_path),
        "/srv/payments/inbox": str(inbox),
    }.items():
        assert there in script
        script = script.replace(there, here)

    def health() -> tuple[int, list[Any]]:
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        return done.returncode, samples(tmp_path / "batchpay-health.prom")

    code, overdue = health()
    assert (code, firing(overdue)) == (6, {"PaymentsNeedAPerson"})
    call("ledger", "backup", "copy.db")
    code, good = health()
    assert (code, firing(good)) == (0, set())
    assert firing(good, 4 * HOUR_S) == {"PaymentsNobodyLooks"}
    cases = [(overdue, 0.0, {"PaymentsNeedAPerson"}), (good, 0.0, set()), (good, 4 * HOUR_S, {"PaymentsNobodyLooks"})]
    require_promtool_agrees(cases, tmp_path)
