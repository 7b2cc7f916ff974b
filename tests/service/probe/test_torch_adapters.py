"""The adapters of PyTorch with PyTorch as it is published, in a process that has the probe alone on its path."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.support.service.packages import FRAMEWORKS, python_with

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, torch, torch.distributed as dist
from torch.utils.data import BatchSampler, SequentialSampler
from kernelcast import probe

class Squares:
    def __len__(self):
        return 10
    def __getitem__(self, index):
        return torch.tensor(index * index)

running = probe.start("adapted", source="cpu", method="manual")
pairs = BatchSampler(SequentialSampler(range(10)), 2, False)
loader = probe.TorchLoader(Squares(), pairs, workers=[0, 1], prefetch=[2], segment_batches=2)
seen = []
for batch in loader:
    seen += batch.tolist()
    if loader.at_end:
        running._tunables.get("loader_workers").put("1")
assert seen == [index * index for index in range(10)], seen
assert loader._loader.num_workers == 1

dist.init_process_group("gloo")
wrapped = []
model = torch.nn.Linear(2, 2)
buckets = probe.TorchBuckets(model, [1, 25], terms={"group": dist.group.WORLD}, configure=wrapped.append)
first = buckets.wrapped()
assert buckets.wrapped() is first
first(torch.ones(1, 2)).sum().backward()
running._tunables.get("bucket_mb").put("25")
second = buckets.wrapped()
assert second is not first and second.module is model and len(wrapped) == 2
second(torch.ones(1, 2)).sum().backward()
assert model.weight.grad.tolist() == [[2, 2], [2, 2]]

layout = probe.TorchMemoryFormat(channels_last=True)
assert layout(torch.ones(1, 3, 4, 4)).is_contiguous(memory_format=torch.channels_last)
running._tunables.get("channels_last").put("off")
assert layout(torch.ones(1, 3, 4, 4)).is_contiguous()

double = probe.torch_compiled(lambda x: 2 * x, modes=["eager"])
assert double(torch.ones(1)).tolist() == [2]
print("done", flush=True)
os._exit(0)
"""


def test_the_loader_the_buckets_and_the_layout_change_while_pytorch_works(tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ("core", "exporter")),
        "KERNELCAST_SOCKET": str(tmp_path / "none.sock"),
        "KERNELCAST_TUNING_DIRECTORY": "off",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    done = subprocess.run(
        [python_with(FRAMEWORKS), "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=120, env=environ
    )
    assert done.stdout == "done\n", done.stderr
