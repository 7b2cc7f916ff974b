"""The probe's CUPTI method, from raw activity buffers to the exporter's series: throughput and cost.

Two figures, without a GPU, so CUPTI's own cost is not included:

* throughput: a recorded job's events as raw records through the decoder in C, beside the same buffers read as one
  Python object per record;
* cost at a pace: a program gets 20,000 launches a second with their copies and waits, from a thread that acts as
  CUPTI's; an exporter runs beside it. The result is the share of one core that each takes, and the share of time for
  which the program's own threads are held.

    python benchmarks/probe/cupti.py [--seconds 40] [--rate 20000] [--json FILE]
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # raw records and the double of libcupti come from the tests

from tests.service.probe.cupti.double import Double, compile_double  # noqa: E402
from tests.service.probe.cupti.records import KERNEL, START_NS, Packer, records_of  # noqa: E402
from tests.service.servers import get  # noqa: E402
from tests.service.stack import Stack  # noqa: E402

from kernelcast.exporter.replay.formats import kineto  # noqa: E402  needs the path above
from kernelcast.probe.cupti import build  # noqa: E402
from kernelcast.probe.cupti.library import Cupti  # noqa: E402
from kernelcast.probe.cupti.method import ActivityEnvironment, ActivityMethod  # noqa: E402
from kernelcast.probe.cupti.native import ActivityDecoder, NativeSettings  # noqa: E402
from kernelcast.probe.cupti.watch import ProfilerWatch  # noqa: E402
from kernelcast.probe.probe import Probe, ProbeSettings  # noqa: E402
from kernelcast.probe.recording.recorder import Recorder  # noqa: E402
from kernelcast.runtime.kafka.embedded import EmbeddedBroker  # noqa: E402
from kernelcast.wire.frames import DeviceClaim  # noqa: E402

if TYPE_CHECKING:
    from kernelcast.exporter.replay import Trace

SHARED = Path(os.environ.get("KERNELCAST_SHARED_DATA", HERE.parents[2] / "shared" / "data"))
RECORDING = SHARED / "kineto" / "control.json.gz"
SYNTHETIC_NAMES = 150
LAUNCHES_PER_WAIT = 40
WARM_SECONDS = 12.0
"""Time until the exporter has written its first interval and every name is known."""
EXPORTER = {"exporter": {"interval_seconds": 10}}
LAUNCHES = "launches"
"""The thread that acts as the program's and CUPTI's threads; the probe's time in it is measured separately."""
UUID = "GPU-00000000-0000-0000-0000-000000000001"
"""UUID of the first device of the program."""


def recorded(packer: Packer) -> tuple[list[bytes], int, str]:
    """Return records of a real job with a wait for every 40 launches, their span in nanoseconds, and their source."""
    if RECORDING.exists():
        trace: Trace = kineto.read(RECORDING)
        shift_ns = START_NS - trace.start_ns
        records, span_ns = records_of(trace, packer, shift_ns=shift_ns), trace.end_ns - trace.start_ns
        return list(with_waits(records, packer)), span_ns, f"{RECORDING.name}, {len(trace.names)} names"
    return list(with_waits(list(synthetic(packer)), packer)), 10_000 * 50_000, f"{SYNTHETIC_NAMES} synthetic names"


def synthetic(packer: Packer) -> Iterator[bytes]:
    """Yield records of launches and copies, where the recording is absent."""
    for number in range(10_000):
        start_ns = START_NS + 50_000 * number
        name, grid = f"_Z{number % SYNTHETIC_NAMES}kernel", (1 + number % 400, 1, 1)
        yield packer.kernel(name, start_ns, start_ns + 2_000 + 37 * (number % 911), grid=grid)
        if number % 38 == 0:
            yield packer.copy(1, 65_536, start_ns, start_ns + 9_000)


def with_waits(records: list[bytes], packer: Packer) -> Iterator[bytes]:
    """Yield the records, with a synchronisation after every LAUNCHES_PER_WAIT launches."""
    launches = 0
    for record in records:
        yield record
        if record[0] == KERNEL:
            launches += 1
            if launches % LAUNCHES_PER_WAIT == 0:
                end_ns = int.from_bytes(record[24:32], "little")
                yield packer.sync(3, end_ns - 1_000, end_ns, context=4)


class KernelRecord(ctypes.Structure):
    """One record as an object, as a binding hands it out: the fields that the decoder uses."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("cache", ctypes.c_uint16),
        ("registers", ctypes.c_uint16),
        ("unused", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in ("start", "end", "completed")),
        *((name, ctypes.c_uint32) for name in ("device", "context", "stream")),
        *((name, ctypes.c_int32) for name in ("x", "y", "z", "u", "v", "w", "static", "dynamic")),
        *((name, ctypes.c_uint32) for name in ("local", "local_total", "correlation")),
        ("number", ctypes.c_int64),
        ("name", ctypes.c_char_p),
    )


def as_objects(double: Double, buffer: Any, length: int, recorder: Recorder) -> int:
    """Read a buffer as one Python object per record: the peer. Returns the number of records."""
    following, record, count = double.library.cuptiActivityGetNextRecord, ctypes.c_void_p(0), 0
    while following(buffer, ctypes.c_size_t(length), ctypes.byref(record)) == 0:
        count += 1
        one = KernelRecord.from_address(record.value or 0)
        if one.kind == KERNEL:
            recorder.observe(
                (one.name or b"").decode(),
                one.end - one.start,
                grid=(one.x, one.y, one.z),
                block=(one.u, one.v, one.w),
                registers=one.registers,
                shared_memory_bytes=one.static + one.dynamic,
                device=one.device,
            )
    return count


def fastest(folder: Path) -> dict[str, Any]:
    """Records per second through the decoder, and as objects; processor time of the thread that does it."""
    packer, double, decoder = (
        Packer(),
        Double(folder / "libcupti_double.so"),
        ActivityDecoder(folder / build.LIBRARY_NAME),
    )
    records, _, source = recorded(packer)
    double.connect(decoder, NativeSettings())
    counts = []
    for _ in range(40):
        double.bring(records)
        decoder.settle(10_000)
        counts.append(decoder.drain(final=True).counts)
    decoder.close()
    in_c = sum(one.records for one in counts) / sum(one.decode_ns for one in counts) * 1e9
    text = b"".join(records)
    buffer, began = ctypes.create_string_buffer(text, len(text)), time.thread_time()
    in_python = as_objects(double, buffer, len(text), Recorder()) / (time.thread_time() - began)
    return {"source": source, "records_per_second": in_c, "as_objects": in_python, "ratio": in_c / in_python}


def processor_seconds(pid: int, *, without: str = "") -> float:
    """Processor time of a process's threads so far, but for those of one name."""
    total = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "comm").read_text().strip() != without:
                total += int((task / "schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:
            continue
    return total


def program(folder: Path, socket_path: str, rate: int, seconds: float) -> None:
    """The measured program; prints its cost between the first and the second line of its input."""
    packer, double = Packer(), Double(folder / "libcupti_double.so")
    records, span_ns, _ = recorded(packer)
    kernels = sum(record[0] == KERNEL for record in records)
    settings = ProbeSettings("bench", socket_path=socket_path, method="cupti", devices=claims())
    probe = Probe(settings, environ={})
    environment = ActivityEnvironment(
        {},
        lambda: ActivityDecoder(folder / build.LIBRARY_NAME),
        lambda _: Cupti(double.library),
        ProfilerWatch({}, {}, frozenset),
        lambda _: (8, 0),
    )
    method_used = ActivityMethod(probe.recorder, environment)
    assert method_used.start(), method_used.reason
    probe.start()
    stopping = threading.Event()
    ticking = threading.Thread(
        target=tick, args=(method_used, settings.interval_seconds, stopping), name="kernelcast-probe"
    )
    ticking.start()
    per_millisecond = round(rate * len(records) / kernels / 1_000)
    milliseconds = int((seconds + WARM_SECONDS + 20) * 1_000)
    double.pace(b"".join(records), span_ns=span_ns, per_millisecond=per_millisecond, milliseconds=milliseconds)
    marks = []
    for line in sys.stdin:
        marks.append(mark(double, method_used))
        print(line, end="", flush=True)
        if len(marks) == 2:
            break
    stopping.set()
    ticking.join()
    method_used.stop()
    probe.stop()
    before, after = marks
    spent = {name: after[name] - before[name] for name in before}
    recorder = probe.recorder
    launches = sum(cell.launches for device in recorder.devices() for cell in recorder.cells(device))
    whole = {"dropped": recorder.dropped_records, "launches": launches, "kernel_share": kernels / len(records)}
    print(json.dumps({**spent, **whole}))


def claims() -> tuple[DeviceClaim, ...]:
    """The devices of the program: the recording is of the fourth of eight."""
    return tuple(DeviceClaim(f"{UUID[:-1]}{number}", str(number), "benchmark") for number in range(8))


def tick(method_used: ActivityMethod, interval_seconds: float, stopping: threading.Event) -> None:
    """The loop of the probe's own thread."""
    while not stopping.wait(interval_seconds):
        method_used.tick()


def mark(double: Double, method_used: ActivityMethod) -> dict[str, float]:
    """Time used and records delivered so far."""
    return {
        "seconds": time.monotonic(),
        "processor_seconds": processor_seconds(os.getpid(), without=LAUNCHES),
        "held_seconds": method_used.held_ns / 1e9,
        "records": double.library.double_brought(),
    }


def paced(folder: Path, rate: int, seconds: float) -> dict[str, Any]:
    """Shares of one core at a pace: of the program, of the exporter beside it, and of the exporter alone."""
    with EmbeddedBroker() as broker, Stack(folder, broker.bootstrap_servers, EXPORTER) as stack:
        exporter = stack.service("exporter")
        assert exporter.process is not None
        pid = exporter.process.pid
        idle = share(pid, WARM_SECONDS, seconds)
        command = [sys.executable, __file__, "--program", str(folder), str(stack.socket), str(rate), str(seconds)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as measured:
            assert measured.stdin is not None
            assert measured.stdout is not None
            time.sleep(WARM_SECONDS)
            turn(measured)
            busy = share(pid, 0, seconds)
            turn(measured)
            spent = json.loads(measured.stdout.readline())
        page = exported(stack)
    assert page["exported_launches"] == spent["launches"], (page, spent)
    elapsed = spent["seconds"]
    return {
        "launches_per_second": spent["records"] * spent["kernel_share"] / elapsed,
        "records_per_second": spent["records"] / elapsed,
        "program_percent": 100 * (spent["processor_seconds"] + spent["held_seconds"]) / elapsed,
        "held_percent": 100 * spent["held_seconds"] / elapsed,
        "exporter_percent": busy,
        "exporter_idle_percent": idle,
        "dropped_records": spent["dropped"],
        **page,
    }


def share(pid: int, wait_seconds: float, seconds: float) -> float:
    """Percent of one core that a process uses over some seconds, after a wait."""
    time.sleep(wait_seconds)
    before = processor_seconds(pid)
    time.sleep(seconds)
    return 100 * (processor_seconds(pid) - before) / seconds


def turn(measured: "subprocess.Popen[str]") -> None:
    """Let the program note its times (`mark`), and wait until it has."""
    assert measured.stdin is not None
    assert measured.stdout is not None
    measured.stdin.write("now\n")
    measured.stdin.flush()
    measured.stdout.readline()


def exported(stack: Stack) -> dict[str, float]:
    """Values on the exporter's own page at the end, which show that the whole path was used."""
    time.sleep(2 * EXPORTER["exporter"]["interval_seconds"])
    page = get(f"http://{stack.addresses['exporter']}/metrics")
    launches = [line for line in page.splitlines() if line.startswith("cuda_kernel_launches_total{")]
    return {"exported_kernels": len(launches), "exported_launches": sum(float(line.split()[-1]) for line in launches)}


def show(result: dict[str, Any]) -> None:
    """Print both figures."""
    fast, pace = result["fastest"], result["paced"]
    print(f"records: {fast['source']}, a wait for every {LAUNCHES_PER_WAIT} launches")
    print(f"decoded in C: {fast['records_per_second'] / 1e6:.2f} million records/s of one core")
    print(f"as Python objects: {fast['as_objects'] / 1e6:.3f} million records/s, ratio {fast['ratio']:.0f}")
    print(f"at {pace['launches_per_second']:,.0f} launches/s ({pace['records_per_second']:,.0f} records/s):")
    print(f"  program: {pace['program_percent']:.2f} % of one core, its threads held {pace['held_percent']:.4f} %")
    print(f"  exporter: {pace['exporter_percent']:.2f} %, without a program {pace['exporter_idle_percent']:.2f} %")
    print(f"  on its page: {pace['exported_kernels']} kernels, {pace['exported_launches']:,.0f} launches")
    print(f"  dropped records: {pace['dropped_records']}")


def main() -> None:
    """Both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=20_000, help="launches per second")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long is measured")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--program", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.program:
        folder, socket_path, rate, seconds = arguments.program
        program(Path(folder), socket_path, int(rate), float(seconds))
        return
    with tempfile.TemporaryDirectory(prefix="kernelcast-cupti-") as directory:
        folder = Path(directory)
        failed = build.compile_library(folder / build.LIBRARY_NAME)
        if failed:
            sys.exit(failed)
        compile_double(folder / "libcupti_double.so", extra=["-O2"])
        result = {"fastest": fastest(folder), "paced": paced(folder, arguments.rate, arguments.seconds)}
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
