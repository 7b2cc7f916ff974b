"""Cost of attribution (users of the GPUs): processor time of an interval and of the threads, and memory.

    python -m benchmarks.attribution --json attribution.json

A node of 8 GPUs with 4 processes each (time-sliced), 110 pods and a job on each GPU; its kubelet is a double in a
process of its own that answers real gRPC, its /proc and log directories are files. Memory is this process's resident
set: after the daemon's modules, and after the kubelet was asked (which imports gRPC).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import kernelcast.exporter.assembly
from kernelcast.exporter.attribution import Attribution, AttributionSettings
from kernelcast.exporter.nvml.sampling.reading import GpuReading

GPUS, PROCESSES, PODS = 8, 4, 110
INTERVALS = 1_000
"""Intervals over which the processor time is averaged."""
MIB = 2**20
PAGE_BYTES = 4096
DAEMON = kernelcast.exporter.assembly.__name__
"""The import of the daemon, so that its modules are part of the first figure."""

KUBELET = """
import sys, time
from pathlib import Path
from tests.support.exporter.kubelet_double import FakeKubelet, container, pod
double = FakeKubelet(Path(sys.argv[1])).start()
gpus = [[("nvidia.com/gpu", f"GPU-{n // 4:08x}-2222-3333-4444-000000000000::{n % 4}")] for n in range(32)]
double.answer = b"".join(pod(f"pod-{n}", "ml", container("main", *(gpus[n] if n < 32 else []))) for n in range(110))
print("ready", flush=True)
sys.stdin.read()
double.stop()
"""


def resident_mib() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES / MIB


def write_node_files(root: Path) -> None:
    """Write files of processes, pods and jobs to a directory, as the node has them."""
    for directory in ("log/pods", "log/containers", "jobs", "proc"):
        (root / directory).mkdir(parents=True)
    for pod in range(PODS):
        (root / "log/pods" / f"ml_pod-{pod}_{pod:08x}-1111-2222-3333-444455556666").mkdir()
        (root / "log/containers" / f"pod-{pod}_ml_main-{pod:064x}.log").touch()
    for process in range(GPUS * PROCESSES):
        (root / "proc" / str(process)).mkdir()
        path = f"kubepods.slice/kubepods-pod{process:08x}_1111_2222_3333_444455556666.slice"
        (root / "proc" / str(process) / "cgroup").write_text(f"0::/{path}/cri-containerd-{process:064x}.scope\n")
    for gpu in range(GPUS):
        (root / "jobs" / str(gpu)).write_text(f"{1000 + gpu}\n")


def measure(root: Path, seconds: float) -> dict[str, float]:
    """Return the costs on the node whose files are in `root`."""
    modules_mib = resident_mib()
    settings = AttributionSettings(
        kubernetes="on",
        socket=root / "kubelet.sock",
        job_directory=root / "jobs",
        logs=root / "log",
        proc=root / "proc",
        host_pids=True,
    )
    gpus = [GpuReading(f"GPU-{n:08x}-2222-3333-4444-000000000000", str(n), device=f"nvidia{n}") for n in range(GPUS)]
    with Attribution(settings, on_error=lambda source: sys.exit(f"{source} failed")) as attribution:
        assert attribution.labels_for(gpus[1]) == ({"namespace": "ml", "container": "main", "hpc_job": "1001"},)
        began = time.process_time()
        for _ in range(INTERVALS):
            for number, gpu in enumerate(gpus):
                attribution.labels_for(gpu)
                for process in range(PROCESSES):
                    assert "pod" in attribution.process_labels(gpu, number * PROCESSES + process)
        interval_ms = (time.process_time() - began) / INTERVALS * 1e3
        began = time.process_time()
        time.sleep(seconds)
        threads_percent = (time.process_time() - began) / seconds * 100
        return {
            "interval_ms": round(interval_ms, 3),
            "threads_percent_of_a_core": round(threads_percent, 3),
            "modules_mib": round(modules_mib, 1),
            "with_kubelet_mib": round(resident_mib(), 1),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the threads are watched")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_node_files(root)
        command = [sys.executable, "-c", KUBELET, str(root / "kubelet.sock")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as kubelet:
            assert kubelet.stdout is not None
            kubelet.stdout.readline()
            figures = measure(root, options.seconds)
            kubelet.communicate()
    print(json.dumps(figures, indent=2))
    if options.json:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
