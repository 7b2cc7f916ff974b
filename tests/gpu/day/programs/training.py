"""Training of a small GPT in bf16: `training turns SECONDS`, `training plain SECONDS`, `training compiled METHOD`."""

import sys
import time
from collections.abc import Callable
from typing import Any

from tests.gpu.day.names import CUPTI
from tests.gpu.day.programs.kernels import answer
from tests.gpu.day.programs.records import Switch, recorded
from tests.gpu.day.programs.turns import OFF, Ticker, by_turns, summary

WIDTH = 512
HEADS = 8
LAYERS = 8
SECTION_SECONDS = 1.2
COMPILED_CALLS = 100


class Training:
    """The model, its optimiser and one step."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        torch.manual_seed(0)
        self._net = torch.nn.Sequential(*(_block(torch) for _ in range(LAYERS))).cuda()
        self._optimiser = torch.optim.AdamW(self._net.parameters(), lr=1e-4)
        self._batch = torch.randn(8, 256, WIDTH, device="cuda")
        self.steps = 0

    def step(self) -> None:
        """Train one step."""
        self._optimiser.zero_grad(set_to_none=True)
        with self._torch.autocast("cuda", self._torch.bfloat16):
            loss = self._net(self._batch).square().mean()
        loss.backward()
        self._optimiser.step()
        self.steps += 1

    def section(self, tick: Callable[[], None], seconds: float = SECTION_SECONDS) -> float:
        """Train for some seconds; returns the seconds of a step."""
        self._torch.cuda.synchronize()
        ticker, steps, began = Ticker(tick), 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            self.step()
            steps += 1
            if steps % 20 == 0:
                self._torch.cuda.synchronize()
            ticker()
        self._torch.cuda.synchronize()
        return (time.perf_counter() - began) / steps

    def free_bytes(self) -> int:
        """Return the free device memory."""
        return int(self._torch.cuda.mem_get_info()[0])


def _block(torch: Any) -> Any:
    attended = torch.nn.functional.scaled_dot_product_attention

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
            self.mixed, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
            wide = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
            self.wide = torch.nn.Sequential(*wide)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            mixed = self.mixed(self.first(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
            query, key, value = mixed.permute(2, 0, 3, 1, 4)
            heads = attended(query, key, value, is_causal=True).transpose(1, 2).reshape(batch, length, WIDTH)
            x = x + self.out(heads)
            return x + self.wide(self.second(x))

    return Block()


def turns(seconds: float) -> None:
    """Step time without records and with one for each kernel; device memory."""
    training = Training()
    training.section(_nothing, 3.0)
    free, steps = training.free_bytes(), training.steps
    every = Switch(CUPTI)
    ways: dict[str, Switch | None] = {OFF: None, "every": every}
    times = by_turns(ways, training.section, seconds)
    records = every.records()
    answer(
        **summary(times),
        step_ms={name: [round(each * 1e3, 3) for each in values] for name, values in times.items()},
        launches=records.launches(),
        lost=records.lost,
        kernels=len(records.kernels),
        steps=training.steps - steps,
        device_bytes=free - training.free_bytes(),
    )


def plain(seconds: float) -> None:
    """Training alone, after the probe has had time to begin; step times second by second."""
    training = Training()
    training.section(_nothing, 3.0)
    end, times = time.monotonic() + seconds, []
    while time.monotonic() < end:
        times.append(round(training.section(_nothing, 1.0) * 1e3, 3))
    answer(step_ms=times, steps=training.steps)


def compiled(method: str) -> None:
    """A compiled function whose kernels come from CUDA graphs: launches by the probe, or by PyTorch's profiler."""
    import torch

    torch.manual_seed(0)
    layers = torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256), torch.nn.Softmax(dim=-1)
    net = torch.nn.Sequential(*layers).cuda().eval()
    batch = torch.randn(64, 256, device="cuda")
    with torch.no_grad():
        expected = net(batch).clone()
        fast = torch.compile(net, mode="reduce-overhead")
        for _ in range(5):
            result = fast(batch).clone()
        torch.cuda.synchronize()
        launches: dict[str, int] = {}
        graph_launches = 0
        if method == "records":
            with recorded(torch.cuda.synchronize) as records:
                for _ in range(COMPILED_CALLS):
                    fast(batch)
            launches = {name: count for name, (count, _ns) in records.kernels.items()}
            graph_launches = sum(cell.graph_launches for cell in records.cells.values())
        else:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as run:
                for _ in range(COMPILED_CALLS):
                    fast(batch)
                torch.cuda.synchronize()
            for event in run.events():
                is_kernel = not event.name.startswith(("Memcpy", "Memset"))
                if event.device_type == torch.autograd.DeviceType.CUDA and is_kernel:
                    launches[event.name] = launches.get(event.name, 0) + 1
    close = bool(torch.allclose(result, expected, atol=1e-2))
    answer(calls=COMPILED_CALLS, launches=launches, graph_launches=graph_launches, result_is_right=close)


def _nothing() -> None:
    """Tick nothing."""


if __name__ == "__main__":
    if sys.argv[1] == "compiled":
        compiled(sys.argv[2])
    else:
        (turns if sys.argv[1] == "turns" else plain)(float(sys.argv[2]))
