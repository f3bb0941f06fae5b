"""An Airflow DAG that submits the files of an inbox: the exit code says whether to skip, to try again, or to fail."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

DONE = {0, 3}  # all that was asked for; 3: rows were rejected or declined, and somebody gets the rejects file
SKIP = {9}  # another run holds the batch
RETRY = {6}  # stopped early: gateway away, deadline, signal; the same command goes on where it stopped
# Everything else fails at once and is never retried by a machine: 7 (rows in doubt) and 8 need a person, 4 another
# file, 1, 2 and 5 somebody who looks.
KEPT = ("batch", "file", "rows", "valid", "rejected", "accepted", "declined", "in_doubt", "pending", "stopped")


class BatchpayOperator(BaseOperator):
    """Runs a command of batchpay; counts of the object that --json prints become the XCom."""

    def __init__(self, *, arguments: list[str], **options: Any) -> None:
        super().__init__(**options)
        self.arguments = arguments
        self.process: subprocess.Popen[str] | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Run the command; its standard error goes to the task's log."""
        line = ["batchpay", *self.arguments, "--json", "--quiet"]
        self.process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
        output, _ = self.process.communicate()
        code = self.process.returncode
        if code in SKIP:
            raise AirflowSkipException(f"exit code {code}: another run holds the batch")
        if code in RETRY:
            raise AirflowException(f"exit code {code}: stopped early, safe to run again")
        if code not in DONE:
            raise AirflowFailException(f"exit code {code}: a person must look")
        found = json.loads(output)
        return {"exit_code": code, "files": [_counts(one) for one in found.get("files", [found])]}

    def on_kill(self) -> None:
        """Let the rows in flight be answered: a SIGKILL would leave them in doubt."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def _counts(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what names payees: XComs are in Airflow's database, and everybody there reads them."""
    return {name: found[name] for name in KEPT if name in found}


with DAG(
    "batchpay",
    schedule="*/30 2-5 * * 1-5",
    start_date=datetime(2026, 1, 1, tzinfo=ZoneInfo("America/New_York")),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 5, "retry_delay": timedelta(minutes=10), "depends_on_past": False},
):
    BatchpayOperator(
        task_id="submit",
        arguments=["submit", "--inbox", "/srv/payments/inbox", "--archive", "/srv/payments/done", "--out", "/srv/out"],
    )
