import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("guarded_decoding.py")
OVER_READ = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "import numpy as np\n"
    "from tests.service.columnar.guarded_decoding import GuardedRoom\n"
    "from kernelcast.columnar.compiled import kernel, load64\n"
    "last = GuardedRoom().at_end(np.ones(7, np.uint8))\n"
    "print(kernel(lambda b: load64(b, 0))(last))\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="page protection is asked for as Linux does")
def test_no_message_makes_the_decoder_read_a_byte_beyond_it() -> None:
    done = subprocess.run([sys.executable, PROGRAM, "1", "1400"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1400 messages")


@pytest.mark.skipif(sys.platform != "linux", reason="page protection is asked for as Linux does")
def test_the_guard_catches_one_byte_too_many() -> None:
    root = str(Path(__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", OVER_READ, root], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV
