"""A candidate that ends its process, with a real process."""

import os
import subprocess
import sys
from pathlib import Path

from kernelcast.tuning.journal import Journal


def test_a_killed_process_leaves_its_line(tmp_path: Path) -> None:
    """The whole way, with a real process that ends without cleaning up."""
    program = (
        "import os, sys, pathlib\n"
        "from kernelcast.tuning.journal import Journal\n"
        "Journal(pathlib.Path(sys.argv[1]), 'training').begin('block', '1024')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=dict(os.environ), check=False)
    assert ended.returncode == -9
    assert Journal(tmp_path, "training").banned("block", "1024")
