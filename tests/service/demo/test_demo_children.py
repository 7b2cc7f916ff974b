"""The demo's services as child processes."""

import sys
import time
from pathlib import Path

from kernelcast.cli.demo.children import DemoProcess, Supervisor


def test_children_stop_in_reverse_and_one_that_dies_is_noticed(tmp_path: Path) -> None:
    supervisor = Supervisor()
    code = "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(60)"
    steady = supervisor.start(DemoProcess("steady", (sys.executable, "-c", code), tmp_path / "steady.log"))
    dying = supervisor.start(
        DemoProcess("dying", (sys.executable, "-c", "raise SystemExit('no luck')"), tmp_path / "d.log")
    )
    assert supervisor.wait_for(dying, 20)
    assert supervisor.failed() == [dying]
    assert "no luck" in dying.log_end()
    while "up" not in steady.log_end():
        time.sleep(0.02)
    assert supervisor.stop() == {"steady": 0, "dying": 1}


def test_a_child_stopped_before_it_could_listen_is_no_failure(tmp_path: Path) -> None:
    child = DemoProcess("early", (sys.executable, "-c", "import time; time.sleep(60)"), tmp_path / "early.log")
    child.start()
    child.stop()
    assert (child.state, child.failed) == ("stopped", False)
