"""The machine: GPU, driver, CUDA, packages."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime

from tests.gpu.day.node import run
from tests.gpu.day.report import StepReport

PACKAGES = ("torch", "triton", "cupy-cuda12x", "cupy-cuda13x", "jax", "tensorflow", "nvidia-cuda-cupti", "numpy")
COMMANDS = (
    "nvidia-smi",
    "nvidia-smi -q",
    "nvidia-smi topo -m",
    "cc --version",
    "nvcc --version",
    "ncu --version",
    "uname -a",
    "lscpu",
    "cat /proc/driver/nvidia/version /proc/driver/nvidia/params",
)
COMMAND_SECONDS = 20.0


def environment(report: StepReport) -> None:
    """Name the machine; the output of all commands goes to `environment.txt`."""
    report.figures(
        date=datetime.now(UTC).date().isoformat(),
        python=sys.version.split()[0],
        packages={name: version for name in PACKAGES if (version := installed(name))},
    )
    if shutil.which("nvidia-smi"):
        query = "--query-gpu=name,driver_version,mig.mode.current,memory.total"
        row = output(["nvidia-smi", query, "--format=csv,noheader"]).strip().splitlines()
        gpu, driver, mig, memory = (part.strip() for part in (row or [",,,"])[0].split(",", 3))
        cuda = re.search(r"CUDA Version *: *(\S+)", output(["nvidia-smi", "-q"]))
        report.figures(gpu=gpu, driver=driver, mig=mig, memory=memory, gpus=len(row), cuda=cuda[1] if cuda else None)
    own = [sys.executable, "-m", "kernelcast.cli"]
    report.figures(kernelcast=output([*own, "--version"]).strip())
    texts = [f"$ {command}\n{output(command.split())}" for command in COMMANDS]
    texts += [f"$ kernelcast doctor\n{output([*own, 'doctor'])}", f"$ pip list\n{output(pip_list())}"]
    (report.folder / "environment.txt").write_text("\n".join(texts))


def pip_list() -> list[str]:
    """Return the command that lists the installed packages."""
    return [sys.executable, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"]


def installed(package: str) -> str:
    """Return a package's version; empty where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def output(command: list[str]) -> str:
    """Return a command's output, or why there is none."""
    try:
        done = run(command, COMMAND_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}\n"
    return done.stdout + done.stderr
