"""The process that calls NVML for the exporter: `python -m kernelcast.exporter.nvml.worker`, started by `isolation/`.

A call may hang for ever, or crash its process. And only a new process loads a new libnvidia-ml after the driver was
replaced. It imports the standard library, pynvml and `kernelcast.wire` only, to keep its memory small.

Requests on stdin: `{"do": "start", "options": {…}}` first, then `{"do": "sample", "time_ns": …}`,
`{"do": "change", "options": {…}}`, `{"do": "stop"}`. Messages on stdout: first `{"found": […]}`, or `{"error": "…"}`,
after which it ends; then `{"reading": {…}}` for each sample. Encoding: `isolation/frames.py`.
"""

import gc
import importlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from kernelcast.exporter.nvml.isolation.call_board import CallBoard, NotedNvml
from kernelcast.exporter.nvml.isolation.frames import MessageAssembler, send
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.runtime.threads import Worker
from kernelcast.wire.errors import DeviceError

END_SECONDS: Final = 1.0
"""Time for a call in progress to return after the exporter has ended."""
YOUNG_OBJECTS: Final = 20_000
"""Objects after which the garbage collector looks at the young ones: a sample makes thousands, and few stay."""
_STOP: Final = {"do": "stop"}


def main(arguments: Sequence[str]) -> None:
    """Serve one exporter until it closes the pipe.

    Args:
        arguments: The file descriptor of the call board; then `MODULE`, or `MODULE:FUNCTION` that returns the module,
            and the function's arguments.
    """
    # Only the exporter ends this process, also if a service manager or a terminal signals the whole process group.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    requests, answers = sys.stdin.fileno(), os.dup(sys.stdout.fileno())
    # Output that a library prints to stdout must not be mixed with the messages.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    Worker("requests", _listen, requests, waiting).start()
    board = CallBoard(int(arguments[0]))
    try:
        _serve(NotedNvml(load(arguments[1:]), board), board, waiting, answers)
    except BrokenPipeError:
        return


def load(source: Sequence[str]) -> Any:
    """Load pynvml, or its replacement."""
    module, _, function = source[0].partition(":")
    found = importlib.import_module(module)
    return getattr(found, function)(*source[1:]) if function else found


def _listen(requests: int, waiting: "queue.SimpleQueue[dict[str, Any]]") -> None:
    """Queue requests, on a thread, and end the process soon after the exporter has ended, even if a call hangs."""
    inbox = MessageAssembler(requests)
    while inbox.read():
        while (request := inbox.next_message()) is not None:
            waiting.put(request)
    waiting.put(_STOP)
    threading.Event().wait(END_SECONDS)
    os._exit(0)


def _serve(nvml: Any, board: CallBoard, waiting: "queue.SimpleQueue[dict[str, Any]]", answers: int) -> None:
    request = waiting.get()
    if "options" not in request:
        return
    sampler = Sampler(nvml, SamplerOptions.from_json(request["options"]), on_xids=board.note_xids)
    try:
        sampler.start()
    except DeviceError as error:
        send(answers, {"error": str(error)})
        return
    gc.freeze()
    _, *older_generations = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *older_generations)
    try:
        send(answers, {"found": [gpu.to_json() for gpu in sampler.found()]})
        while (request := waiting.get())["do"] != _STOP["do"]:
            if request["do"] == "change":
                sampler.change(SamplerOptions.from_json(request["options"]))
            else:
                send(answers, {"reading": sampler.sample(request["time_ns"]).to_json()})
    finally:
        sampler.close()


if __name__ == "__main__":
    main(sys.argv[1:])
