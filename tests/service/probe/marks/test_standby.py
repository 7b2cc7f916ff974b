"""Whether a real process waits for a person: in a fork, too, as notebooks and launchers start programs."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.service

PROGRAM = """
import os, sys, threading, time
from kernelcast.probe.marks.standby import waits_for_person

def watch(thread):
    until = time.monotonic() + 20
    while not waits_for_person(sys._current_frames()[thread], thread) and time.monotonic() < until:
        time.sleep(0.01)
    print("waits" if time.monotonic() < until else "is at work", flush=True)
    os._exit(0)

if {forks} and (child := os.fork()):
    os.waitpid(child, 0)
    os._exit(0)
threading.Thread(target=watch, args=(threading.get_ident(),)).start()
(lambda: input("Go on? "))()
"""


@pytest.mark.parametrize("forks", [False, True], ids=["started", "forked"])
def test_a_call_of_input_waits_for_a_person(*, forks: bool) -> None:
    reading, writing = os.pipe()  # its input, which never has anything
    try:
        program = [sys.executable, "-c", PROGRAM.format(forks=forks)]
        done = subprocess.run(program, stdin=reading, capture_output=True, text=True, timeout=60, check=True)
    finally:
        os.close(reading)
        os.close(writing)
    assert "waits" in done.stdout
