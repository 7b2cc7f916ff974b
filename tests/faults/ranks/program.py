"""One rank of a job with a collective tunable, as a process: `python program.py RANK SIZE PLACE GROUP SEED FILE`.

GROUP is `socket` or `gloo`. PLACE is where the ranks meet. Over sockets there are two groups: rank 0 gets the
descriptors of two sockets that listen (`5,6`), the others their ports (`40123,40124`). Over gloo it is a file.

In half of the jobs the ranks search a collective space, too. The program imports the probe, the contract and the tuner
only, so that an interpreter with nothing but PyTorch runs it. Every step communicates, as distributed training does.
Each step's values are written to FILE, and at the end the outcomes. With `KERNELCAST_SOCKET` the hints come from the
exporter there, else each rank hands one to itself. With `RANKS_UNTIL_DECIDED=1` the job ends soon after every rank has
an outcome of the hint.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from kernelcast import probe

sys.path.insert(0, str(Path(__file__).parent))
from sockets import SocketGroup  # type: ignore[import-not-found]

STEPS = int(os.environ.get("RANKS_STEPS", "500"))
STEP_SECONDS = {16: 0.004, 32: 0.003}
NANOSECONDS = 1_000_000_000
SLOWNESS = float(os.environ.get("RANKS_SLOWNESS", "1"))
"""Factor of all steps' times."""
UNTIL_DECIDED = os.environ.get("RANKS_UNTIL_DECIDED") == "1"
STEPS_AFTER_DECISION = 20
SEARCHING = 0.5
"""Share of the jobs that search a space besides."""


def hint(program: str) -> dict[str, Any]:
    """A hint as the exporter delivers it."""
    from kernelcast.wire.events import Hint, to_event

    data = Hint("h1", program, "batch", "32", time.time_ns() + 600 * NANOSECONDS)
    return to_event(data, source="/test", time_ns=time.time_ns())


def main(arguments: list[str]) -> None:
    """Run the steps; an error of the job's own communication ends them, as it would without the probe."""
    rank, size, place, kind, seed, file = arguments
    drawn = random.Random(f"{seed} {rank}")
    exporter = os.environ.get("KERNELCAST_SOCKET", "")
    running = probe.start("ranks", rank, socket_path=exporter or f"{file}.none", source="cpu", method="manual")
    feed: Any = None
    step_of_hint = drawn.randrange(60)
    if kind == "gloo":
        group, couple = gloo(int(rank), int(size), place)
    else:
        ours, theirs = (SocketGroup(int(rank), int(size), int(one)) for one in place.split(","))
        group, couple = ours, lambda: all(theirs.all_gather("decided" if UNTIL_DECIDED and decided(running) else ""))
    with open(file, "w", encoding="utf-8", buffering=1) as out:  # noqa: PTH123  line by line, for a rank that is killed
        try:
            batch = probe.tunable("batch", [16, 32], 16, scope="collective", group=group)
            if random.Random(f"searches {seed}").random() < SEARCHING:
                terms = {"per": "step", "scope": "collective", "group": group, "share": 1.0}
                feed = probe.space("feed", {"workers": [0, 4, 8]}, start={"workers": 0}, **terms)
            left = STEPS
            for step in range(STEPS):
                out.write(f"{batch.value}{feed.workers if feed else ''}\n")
                if step == step_of_hint and not exporter:
                    running._receiver.receive(hint("ranks"))
                seconds = STEP_SECONDS[batch.value] * drawn.uniform(0.9, 1.1) + (0.001 if feed and feed.workers else 0)
                time.sleep(SLOWNESS * seconds)
                if couple():
                    left = min(left, STEPS_AFTER_DECISION)
                probe.step()
                left -= 1
                if not left:
                    break
        except Exception as error:  # noqa: BLE001  a peer is gone
            out.write(f"# {type(error).__name__}\n")
        probe.stop()
        states = [[one.state.value, one.decision] for one in running.outcomes if not one.is_search]
        searches = [[one.state.value, one.decision] for one in running.outcomes if one.is_search]
        value = [batch.value, feed.workers if feed else 0]
        out.write(json.dumps({"outcomes": states, "searches": searches, "value": value}) + "\n")


def decided(running: Any) -> bool:
    """Whether the hint's trial has ended on this rank."""
    return any(not one.is_search and one.state.value in ("kept", "rolled_back") for one in running.outcomes)


def gloo(rank: int, size: int, file: str) -> tuple[Any, Any]:
    """Make a process group of PyTorch on the CPU, and a function that reduces a tensor over it."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    tensor = torch.ones(1)
    return dist.group.WORLD, lambda: dist.all_reduce(tensor) and False


if __name__ == "__main__":
    main(sys.argv[1:])
    if sys.argv[4] == "gloo":
        os._exit(
            0
        )  # its threads drop tensors while the interpreter ends, which aborts 1 process in 30 (PyTorch 179291)
