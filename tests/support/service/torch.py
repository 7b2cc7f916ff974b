"""An interpreter that has PyTorch."""

import subprocess
import sys

import pytest


def python_with_torch() -> str:
    """Return Debian's interpreter, for which PyTorch is a package of its own, or this one; skips if neither has it."""
    for python in ("/usr/bin/python3", sys.executable):
        asked = subprocess.run([python, "-c", "import torch.distributed"], check=False, capture_output=True)
        if asked.returncode == 0:
            return python
    pytest.skip("no interpreter here has PyTorch; Debian's package is python3-torch")
