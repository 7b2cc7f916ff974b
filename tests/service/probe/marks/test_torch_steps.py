"""Steps and phases of real programs, whose code knows nothing of the probe; each counts its steps itself."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.service.require import REPOSITORY
from tests.support.ports import free_ports
from tests.support.service.packages import FRAMEWORKS, environment, python_with
from tests.support.service.probe_node import Node

from kernelcast.wire.catalogue import kernel

pytestmark = pytest.mark.service

HERE = Path(__file__).parent
IN_ORDER = ["backward", "data", "forward", "optimizer", "other"]


def printed(*arguments: str, **environ: str) -> Any:
    """Run a program of this folder with PyTorch; returns what its last line prints as JSON."""
    done = subprocess.run(
        [python_with(FRAMEWORKS), *arguments], capture_output=True, text=True, env=environment(**environ), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def loops() -> dict[str, Any]:
    found: dict[str, Any] = printed(str(HERE / "loops.py"))
    return found


@pytest.mark.parametrize(
    "name",
    [
        "without_a_loader",
        "plain",
        "accumulation",
        "fetched_ahead",
        "two_optimizers",
        "closure",
        "scaler",
        "iterable_dataset",
        "persistent_workers",
        "in_another_thread",
        "each_step_in_another_thread",
        "fused_into_backward",
        "subclass_that_calls_super",
        "autograd_grad",
        "an_optimizer_that_fails_and_goes_on",
        "evaluation_between_steps",
    ],
)
def test_every_step_of_a_loop_is_counted_once(loops: dict[str, Any], name: str) -> None:
    assert loops[name]["steps"] == loops[name]["made"], loops[name]


def test_a_step_that_the_scaler_skips_is_said_as_skipped(loops: dict[str, Any]) -> None:
    assert {name for name, found in loops.items() if found["skipped"]} == {"scaler"}
    assert loops["scaler"]["skipped"] == 1


def test_the_samples_of_a_loaders_batches_are_the_items_of_its_steps(loops: dict[str, Any]) -> None:
    known = {"plain": 48, "accumulation": 24, "closure": 24, "persistent_workers": 48, "evaluation_between_steps": 48}
    assert {name: loops[name]["items"] for name in known} == known
    assert loops["iterable_dataset"]["items"] == 10  # batches of 4, 4 and 2
    assert loops["without_a_loader"]["items"] == 0


def test_a_program_has_the_phases_that_it_has(loops: dict[str, Any]) -> None:
    assert loops["plain"]["phases"] == IN_ORDER
    assert "data" not in loops["without_a_loader"]["phases"]
    assert loops["evaluation_between_steps"]["phases"] == sorted([*IN_ORDER, "evaluation"])


@pytest.mark.parametrize(
    "name", ["hugging_face", "lightning", "lightning_accumulated", "lightning_manual", "accelerate"]
)
def test_every_step_of_a_trainer_is_counted_once(name: str, tmp_path: Path) -> None:
    found = printed(str(HERE / "trainers.py"), name, str(tmp_path), ACCELERATE_USE_CPU="1")
    assert found["steps"] == found["made"] > 9
    assert found["items"] == (160 if name == "accelerate" else 80)
    further = ["checkpoint"] if name == "accelerate" else ["checkpoint", "evaluation"]
    assert found["phases"] == sorted([*IN_ORDER, *further])


def test_every_step_of_a_data_parallel_job_is_counted_once() -> None:
    (port,) = free_ports(1)
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port))
    found = printed(*launcher, str(HERE / "distributed.py"))
    assert found == {name: {"made": 5, "steps": 5, "items": 40} for name in ("ddp", "fsdp2", "zero")}


@pytest.fixture(scope="module")
def uncompared() -> dict[str, Any]:
    """Compiled programs without a probe."""
    found: dict[str, Any] = printed(str(HERE / "compiled.py"), "off")
    return found


@pytest.mark.parametrize("started", ["early", "late", "timed"])
def test_programs_are_compiled_as_without_the_probe_and_their_steps_are_counted(
    started: str, uncompared: dict[str, Any]
) -> None:
    found = printed(str(HERE / "compiled.py"), started)
    for name, without in uncompared.items():
        assert found[name]["compiler"] == without["compiler"], name
        assert found[name]["losses"] == without["losses"], name
        assert (found[name]["steps"], found[name]["compilations"] > 0) == (6, True), name
    assert {"model", "optimizer", "function", "whole", "gradients", "evaluation", "loader"} == found.keys()


def test_types_signatures_tracebacks_and_results_are_those_without_the_probe() -> None:
    without, found = (printed(str(HERE / "unchanged.py"), switch) for switch in ("off", "on"))
    assert found == without
    assert all(found["tracebacks"])


def test_phases_are_those_of_a_stopwatch_at_their_borders() -> None:
    found = printed(str(HERE / "stopwatch.py"), "phases")
    assert {"data", "forward", "backward", "optimizer", "other", "step"} == found.keys()
    for name, (watched_ns, difference_ns) in found.items():
        limit_ns = max(0.001 * watched_ns, 10_000) if name == "step" else max(0.03 * watched_ns, 20_000)
        assert abs(difference_ns) <= limit_ns, (name, watched_ns, difference_ns)


def test_marks_take_ten_microseconds_of_a_step_at_most() -> None:
    """A batch is to take 1 microsecond on a quiet machine; here it may take twice as long."""
    found = printed(str(HERE / "stopwatch.py"), "costs")
    assert 0 < found["batch"] <= 2_000
    assert 0 < found["step"] <= 10_000


def test_a_loop_that_knows_nothing_of_the_probe_reports_its_steps_without_a_gpu(tmp_path: Path) -> None:
    node = Node(tmp_path / "probe.sock")
    preload = REPOSITORY / "exporter" / "kernelcast" / "probe" / "preload" / "pythonpath"
    switched = environment(KERNELCAST_PROBE="1", KERNELCAST_SOCKET=str(node.path))
    switched["PYTHONPATH"] = f"{preload}{os.pathsep}{switched['PYTHONPATH']}"
    program = HERE / "one_loop.py"
    done = subprocess.run([python_with(FRAMEWORKS), program], capture_output=True, text=True, env=switched, check=True)
    assert node.ended() == 1
    found: dict[str, float] = {}
    for group in node.aggregator.samples(time.time_ns()):
        assert group.program == "one_loop"
        for sample in group.samples:
            assert {"source": "cpu", "UUID": "cpu"}.items() <= dict(sample.attributes).items()
            if isinstance(sample.value, int | float):
                found[sample.metric.prometheus_name] = found.get(sample.metric.prometheus_name, 0) + sample.value
    assert found[kernel.STEPS.prometheus_name] == int(done.stdout) == 40
    assert found[kernel.ITEMS.prometheus_name] == 320
    phases, steps = (found[metric.prometheus_name] for metric in (kernel.PHASE_SECONDS, kernel.STEP_SECONDS))
    assert steps <= phases <= steps + 0.5  # and what came after the last step
    node.server.close()
