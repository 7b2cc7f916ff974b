"""Modules that NVML's process imports."""

import subprocess
import sys


def test_the_sampler_needs_no_heavy_library() -> None:
    heavy = ("numpy", "numba", "pydantic", "confluent_kafka", "structlog", "kernelcast.columnar")
    code = (
        "import sys, kernelcast.exporter.nvml.sampling.sampler; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
