"""Real processes with a probe in them, and an exporter that may be there, gone, deaf or never have been."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.wire.errors import FrameError
from kernelcast.wire.frames import MAX_FRAME_BYTES, Bye, Frame, Hello, KernelRows, Status, decode

ROOT = Path(__file__).parents[3]
PATHS = os.pathsep.join(str(ROOT / root) for root in ("core", "exporter", "."))


class Listener:
    """The exporter's end of the socket: takes what comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(path))
        self._socket.listen(64)
        self._socket.settimeout(LONGEST_SECONDS)

    def frames_of(self, processes: int) -> dict[str, list[Frame]]:
        """All frames of a number of processes until they disconnect, by nonce."""
        found: dict[str, list[Frame]] = {}
        for _ in range(processes):
            connection, _ = self._socket.accept()
            connection.settimeout(LONGEST_SECONDS)
            frames = list(_frames(connection))
            hello = frames[0]
            assert isinstance(hello, Hello)
            found[hello.nonce] = frames
        return found

    def close(self) -> None:
        self._socket.close()


def _frames(connection: socket.socket) -> Iterator[Frame]:
    with connection:
        while packet := connection.recv(MAX_FRAME_BYTES + 1):
            try:
                yield decode(packet)
            except FrameError:
                raise AssertionError(packet) from None


def launched(frames: list[Frame]) -> int:
    rows = {row.kernel: row.launches for frame in frames if isinstance(frame, KernelRows) for row in frame.rows}
    return sum(rows.values())


def hellos(found: dict[str, list[Frame]]) -> list[Hello]:
    return [frame for frames in found.values() for frame in frames if isinstance(frame, Hello)]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(tmp_path / "probe.sock")
    yield made
    made.close()


def start(code: str, socket_path: Path, *flags: str, **environ: str) -> "subprocess.Popen[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KERNELCAST")}
    variables = {"KERNELCAST_SOCKET": str(socket_path), "KERNELCAST_PROBE_INTERVAL_SECONDS": "0.1", "PYTHONPATH": PATHS}
    return subprocess.Popen(
        [sys.executable, *flags, "-c", textwrap.dedent(code)],
        env={**clean, **variables, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(program: "subprocess.Popen[str]", code: int = 0) -> tuple[str, str]:
    out, err = program.communicate(timeout=LONGEST_SECONDS)
    assert program.returncode == code, err
    return out, err


LAUNCHING = """
    from tests.support.probe.cupy_double import installed
    import kernelcast.probe.methods.environment as environment, kernelcast.probe.process.driver as driver
    from kernelcast import probe
    with installed() as cupy:
        running = probe.start("train", source="simulated")
        running.selection._environment = environment.MethodEnvironment(contexts=lambda: (0,))
        (raw,) = cupy.compile("raw")
        for _ in range(1000):
            raw((1,), (1,), ())
        cupy.gpu.finish()
        {more}
"""


def test_a_programs_launches_arrive_whole_though_it_ends_at_once(listener: Listener) -> None:
    program = start(LAUNCHING.format(more="probe.stop()"), listener.path, "-X", "dev", "-W", "error")
    (frames,) = listener.frames_of(1).values()
    out, err = ended(program)
    assert (out, err.count("kernelcast: "), err.count("\n")) == ("", 1, 1)
    assert launched(frames) == 1000
    assert isinstance(frames[-1], Bye)
    statuses = [frame for frame in frames if isinstance(frame, Status)]
    assert statuses[-1].method == "event"


def test_an_exception_and_a_kill_end_the_program_as_they_would(listener: Listener) -> None:
    program = start(LAUNCHING.format(more="raise KeyError('mine')"), listener.path)
    (frames,) = listener.frames_of(1).values()
    assert "KeyError: 'mine'" in ended(program, 1)[1]
    assert isinstance(frames[-1], Bye)
    program = start(LAUNCHING.format(more="import time; time.sleep(60)"), listener.path)
    connection, _ = listener._socket.accept()
    program.send_signal(signal.SIGKILL)
    ended(program, -signal.SIGKILL)
    assert not any(isinstance(frame, Bye) for frame in _frames(connection))


FORKING = """
    import os
    from kernelcast import probe
    probe.start("train", source="simulated")
    probe.observe("parent", 1000)
    child = os.fork()
    if child == 0:
        probe.observe("silent", 1000)
        if {again}:
            probe.start("train", source="simulated")
            with probe.region("child"):
                probe.observe("own", 1000)
        probe.stop()
        os._exit(0)
    os.waitpid(child, 0)
    probe.observe("parent", 1000)
"""


def test_a_forked_child_is_silent_until_it_starts_a_probe_of_its_own(listener: Listener) -> None:
    program = start(FORKING.format(again=False), listener.path)
    (frames,) = listener.frames_of(1).values()
    ended(program)
    assert launched(frames) == 2
    program = start(FORKING.format(again=True), listener.path)
    both = listener.frames_of(2)
    ended(program)
    assert sorted(launched(frames) for frames in both.values()) == [1, 2]


RANKS = 4


def test_ranks_report_under_their_own_numbers(listener: Listener) -> None:
    code = """
        from kernelcast import probe
        from kernelcast.probe import probe as lifetime
        from kernelcast.probe.reporting import sender
        lifetime.STOP_SECONDS = sender.LAST_FRAMES_SECONDS = 20.0  # all at once on a busy machine
        probe.start("train", source="simulated")
        probe.observe("k", 1000)
    """
    programs = [start(code, listener.path, PMI_RANK=str(rank)) for rank in range(RANKS)]
    found = listener.frames_of(RANKS)
    for program in programs:
        ended(program)
    assert sorted(hello.rank for hello in hellos(found)) == [str(rank) for rank in range(RANKS)]
    assert all(launched(frames) == 1 for frames in found.values())


def test_switched_on_by_the_environment_an_idle_process_opens_no_socket_and_no_thread(listener: Listener) -> None:
    code = """
        from kernelcast.probe.preload.door import open_door
        open_door()
        import threading, os
        folder = "/proc/self/fd"
        targets = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder) if os.path.exists(f"{folder}/{fd}")]
        print(threading.active_count(), sum(target.startswith("socket:") for target in targets))
    """
    assert ended(start(code, listener.path, KERNELCAST_PROBE="1"))[0] == "1 0\n"


WAITING = """
    import os, sys
    from kernelcast.probe.preload.door import open_door
    open_door()
    from tests.support.probe.cupy_double import installed
    import kernelcast.probe.activation.context_waiter as context_waiter, multiprocessing

    def work():
        with installed() as cupy:
            context_waiter._process.waiter._watch_cupy(cupy.modules["cupy.cuda.compiler"])
            import kernelcast.probe.methods.environment as environment
            (raw,) = cupy.compile("raw")
            from kernelcast.probe.activation import current
            current._current.probe.selection._environment = environment.MethodEnvironment(contexts=lambda: (0,))
            raw((1,), (1,), ())
            cupy.gpu.finish()
            from kernelcast import probe
            probe.stop()

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work) for _ in range(2)]
    for child in children: child.start()
    for child in children: child.join()
    print("kernelcast.probe.activation.current" in sys.modules)
"""


def test_forked_children_of_a_waiting_process_report_by_their_own_context_and_nonce(listener: Listener) -> None:
    program = start(WAITING, listener.path, KERNELCAST_PROBE="1", KERNELCAST_PROGRAM="train")
    found = listener.frames_of(2)
    assert ended(program)[0] == "False\n"
    assert len(found) == 2
    assert len({hello.pid for hello in hellos(found)}) == 2
    assert all(launched(frames) == 1 for frames in found.values())


TIMING = """
    import time
    from kernelcast import probe
    probe.start("train", source="simulated")
    slowest = 0.0
    deadline = time.perf_counter() + 2.0
    turn = 0
    while time.perf_counter() < deadline:
        turn += 1
        began = time.thread_time()
        for _ in range(50):
            probe.observe(f"kernel {turn % 500}", 1000)
        slowest = max(slowest, (time.thread_time() - began) / 50)
    began = time.perf_counter()
    probe.stop()
    print(slowest < 0.005, time.perf_counter() - began < 1.0)
"""


@pytest.mark.parametrize("exporter", ["none", "deaf", "gone"])
def test_whatever_the_exporter_does_the_program_does_not_wait(tmp_path: Path, exporter: str) -> None:
    """Deaf: it accepts and never reads, so that the socket's buffer fills."""
    path = tmp_path / "probe.sock"
    with contextlib.ExitStack() as stack:
        listening = Listener(path) if exporter != "none" else None
        program = start(TIMING, path)
        if listening is not None:
            stack.callback(listening.close)
            connection = stack.enter_context(listening._socket.accept()[0])
            if exporter == "gone":
                connection.close()
                listening.close()
                path.unlink()
        out, err = ended(program)
    assert out == "True True\n"
    assert err.count("found no exporter") == (exporter != "deaf")


def test_two_hundred_thousand_launches_hold_no_more_memory_than_twenty_thousand() -> None:
    code = """
        import gc, sys
        from tests.support.probe.cupy_double import Clock, installed
        from kernelcast.probe.cupy.method import CupyMethod
        from kernelcast.probe.recording.recorder import Recorder
        from kernelcast.probe.recording.regions import region
        with installed() as cupy:
            clock, recorder = Clock(), Recorder()
            method_used = CupyMethod(recorder, clock, lambda: 100.0)
            method_used.sample(1.0)
            method_used.begin()
            (raw,) = cupy.compile("raw")
            def launch(times):
                for _ in range(times):
                    for index in range(50):
                        with region("r" + str(index)):
                            for grid in range(200):
                                raw((grid % 7 + 1,), (1,), ())
                    cupy.gpu.finish()
                    cupy.gpu.launches.clear()
                    clock.pass_seconds(1)
                    method_used.poll()
            launch(2)
            gc.collect()
            before = sys.getallocatedblocks()
            launch(20)
            gc.collect()
            grown = sys.getallocatedblocks() - before
            print(grown < 400, sum(cell.launches for cell in recorder.cells(0)) > 200_000)
    """
    assert ended(start(code, Path("/nowhere")))[0] == "True True\n"
