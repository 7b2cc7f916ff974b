"""Rolls kept values of tunables that change at a restart only out to a deployment; proves each before and after.

Airflow 3. The worker needs kernelcast[runtime], kubectl, and a GPU like that of the deployment.
"""

import json
import subprocess
from datetime import UTC, datetime

from airflow.sdk import dag, task

PROGRAM, RESTART = "train", ("bucket_mb", "precision")
KAFKA, DEPLOYMENT = "kafka:9092", "deployment/train"
SHORT_RUN = ("python", "train.py", "--steps", "200")  # prints {"seconds": 81.2, "items": 12800} as its last line


def proved(change: dict[str, str]) -> bool:
    """Run new and old value in turn, as kernelcast's trials do; returns whether the new one was kept."""
    new, old = (f"{change['tunable']}={change[which]}" for which in ("value", "previous"))
    command = ("python", "-m", "kernelcast.tuning.runs", "--set", new, "--against", old, "--", *SHORT_RUN)
    return subprocess.run(command, check=False).returncode == 0


def put(tunable: str, value: str) -> None:
    """Restart the deployment with a value, and wait until it runs."""
    wanted = f"KERNELCAST_SET={json.dumps({tunable: value})}"
    subprocess.run(("kubectl", "set", "env", DEPLOYMENT, wanted), check=True)
    subprocess.run(("kubectl", "rollout", "status", DEPLOYMENT, "--timeout=30m"), check=True)


@dag(schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def roll_out_kept_values() -> None:
    """One value a day at most, so that its effect is known."""

    @task
    def kept() -> list[dict[str, str]]:
        command = ("kernelcast", "hints", "export", "--kafka.bootstrap-servers", KAFKA)
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        rows = [row for row in map(json.loads, lines) if row["program"] == PROGRAM and row["tunable"] in RESTART]
        return rows[:1]  # the newest

    @task
    def roll_out(change: dict[str, str]) -> str:
        if not proved(change):
            return "not proved"
        put(change["tunable"], change["value"])
        if proved(change):
            return "in force"
        put(change["tunable"], change["previous"])
        return "taken back"

    roll_out.expand(change=kept())  # pyright: ignore[reportFunctionMemberAccess]  Airflow is not installed here


roll_out_kept_values()
