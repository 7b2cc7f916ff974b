"""Rolls approved values of restart-only tunables out to a deployment, and measures each before and after.

A person approves a hint with `kernelcast hints approve`. This DAG writes its outcome to Kafka, which closes the hint.
Airflow 3. The worker needs kernelcast[runtime], kubectl, and a GPU like that of the deployment.
"""

import json
import subprocess
from datetime import UTC, datetime

from airflow.sdk import dag, task

PROGRAM, DEPLOYMENT = "train", "deployment/train"
KAFKA = ("--kafka.bootstrap-servers", "kafka:9092")
SHORT_RUN = ("python", "train.py", "--steps", "200")  # prints {"seconds": 81.2, "items": 12800} as its last line
FAILED = '{"decision": "failed", "reason": "the runs ended with an error"}'


def proof(change: dict[str, str]) -> str:
    """Run the program with new and old value in turn, as kernelcast's trials do; returns the verdict as JSON."""
    new, old = (f"{change['tunable']}={change[which]}" for which in ("value", "previous"))
    command = ("python", "-m", "kernelcast.tuning.runs", "--set", new, "--against", old, "--", *SHORT_RUN)
    return subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True).stdout or FAILED


def put(tunable: str, value: str) -> None:
    """Restart the deployment with a value, and wait until it runs."""
    wanted = f"KERNELCAST_SET={json.dumps({tunable: value})}"
    subprocess.run(("kubectl", "set", "env", DEPLOYMENT, wanted), check=True)
    subprocess.run(("kubectl", "rollout", "status", DEPLOYMENT, "--timeout=30m"), check=True)


@dag(schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def roll_out_approved_values() -> None:
    """One value a day at most, so that its effect is known."""

    @task
    def approved() -> list[dict[str, str]]:
        chosen = ("--state", "approved", "--granularity", "restart", "--program", PROGRAM)
        command = ("kernelcast", "hints", "export", *chosen, *KAFKA)
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        return [json.loads(line) for line in lines[:1]]  # the newest

    @task
    def roll_out(change: dict[str, str]) -> str:
        verdict = proof(change)
        if json.loads(verdict)["decision"] == "kept":
            put(change["tunable"], change["value"])
            verdict = proof(change)
            if json.loads(verdict)["decision"] != "kept":
                put(change["tunable"], change["previous"])
        report = ("kernelcast", "hints", "report", change["hint_id"], *KAFKA)
        subprocess.run(report, check=True, input=verdict, text=True)
        return str(json.loads(verdict)["decision"])

    roll_out.expand(change=approved())  # pyright: ignore[reportFunctionMemberAccess]  Airflow is not installed here


roll_out_approved_values()
