"""Profiling rows through NVML's GPU performance monitoring (GPM): counters between two samples. Hopper and later.

`Sampler` calls `read` for each GPU and MIG instance. Source: nvml.h, "GPM Functions".
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from kernelcast.exporter.nvml.sampling import fields, reading
from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.fields import GRAPHICS, GpmMetric
from kernelcast.exporter.nvml.sampling.gpu_values import Failed, GpuValues, LostGpuError, is_available
from kernelcast.exporter.nvml.sampling.inventory import Gpu
from kernelcast.wire.catalogue.devices.device import GPU_UTIL

SHORTEST_NS: Final = 100_000_000
"""Shortest time between two samples, as in DCGM; GPM gives no values for a shorter one."""


@dataclass(slots=True)
class SamplePair:
    """NVML's memory of the last two GPM samples of one GPU or instance; the next sample replaces the earlier one.

    Attributes:
        earlier: The sample before the last; empty before the second.
        latest: The last sample, taken at `latest_ns`; empty before the first.
        latest_ns: Running time in nanoseconds; None before the first sample.
    """

    earlier: Any
    latest: Any
    latest_ns: int | None = None


class Gpm:
    """GPM of all GPUs and MIG instances of a node.

    Args:
        nvml: pynvml, or a double of it.
        codes: Its error codes.
        failed: Called for errors other than "not found" and "not supported".
    """

    def __init__(self, nvml: Any, codes: Codes, failed: Failed) -> None:
        self._nvml = nvml
        self._codes = codes
        self._failed = failed
        self._pairs: dict[tuple[str, str], SamplePair] = {}
        self._supported: dict[str, str] = {}
        # It has room for every metric, 20 KB, so it is made once.
        self._request = nvml.c_nvmlGpmMetricsGet_t()
        self._request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        self._asked: tuple[GpmMetric, ...] = ()
        self._slots: list[Any] = []

    def read(self, gpu: Gpu, wanted: frozenset[str], now_ns: int, into: GpuValues) -> None:
        """Add the wanted profiling rows to `into`, or the reasons why they are absent.

        Raises:
            LostGpuError: The GPU is gone.
        """
        asked = _asked(wanted)
        if not asked:
            return
        reason = self._unsupported(gpu) or self._take_sample(gpu, now_ns)
        if reason:
            divided = gpu.mig_mode and reason == reading.NOT_SUPPORTED
            _absent(asked, reading.MIG if divided else reason, into)
        else:
            self._metrics(gpu, asked, into)

    def keep(self, gpus: list[Gpu]) -> None:
        """Free the memory of GPUs that are gone."""
        present = {gpu.key for gpu in gpus}
        for key in [key for key in self._pairs if key not in present]:
            self._free(self._pairs.pop(key))
        self._supported = {}

    def close(self) -> None:
        """Free everything; call before NVML is released."""
        self.keep([])

    def _unsupported(self, gpu: Gpu) -> str:
        """Return the reason why this GPU has no GPM; empty if it has."""
        if gpu.uuid not in self._supported:
            try:
                support = self._nvml.nvmlGpmQueryDeviceSupport(gpu.parent)
                self._supported[gpu.uuid] = "" if support.isSupportedDevice else reading.NEEDS_HOPPER
            except self._nvml.NVMLError as error:
                reason = self._reason(fields.GPM_SUPPORT_CALL, error)
                if reason != reading.NOT_SUPPORTED:
                    return reason
                self._supported[gpu.uuid] = reading.NEEDS_HOPPER
        return self._supported[gpu.uuid]

    def _take_sample(self, gpu: Gpu, now_ns: int) -> str:
        """Take the next sample; returns the reason why there are no two to compare, empty if there are."""
        nvml = self._nvml
        try:
            pair = self._pairs.get(gpu.key) or self._allocated(gpu)
            if pair.latest_ns is not None and now_ns - pair.latest_ns < SHORTEST_NS:
                return reading.NO_DATA
            if gpu.gi_id:
                nvml.nvmlGpmMigSampleGet(gpu.parent, int(gpu.gi_id), pair.earlier)
            else:
                nvml.nvmlGpmSampleGet(gpu.handle, pair.earlier)
        except nvml.NVMLError as error:
            return self._reason(fields.GPM_SAMPLE_CALL, error)
        first = pair.latest_ns is None
        pair.earlier, pair.latest, pair.latest_ns = pair.latest, pair.earlier, now_ns
        return reading.NO_DATA if first else ""

    def _allocated(self, gpu: Gpu) -> SamplePair:
        first = self._nvml.nvmlGpmSampleAlloc()
        try:
            pair = SamplePair(first, self._nvml.nvmlGpmSampleAlloc())
        except self._nvml.NVMLError:
            self._nvml.nvmlGpmSampleFree(first)
            raise
        self._pairs[gpu.key] = pair
        return pair

    def _metrics(self, gpu: Gpu, asked: tuple[GpmMetric, ...], into: GpuValues) -> None:
        """Add the metrics between the two samples to `into`."""
        nvml, pair = self._nvml, self._pairs[gpu.key]
        if asked != self._asked:
            self._ask(asked)
        request = self._request
        request.sample1, request.sample2 = pair.earlier, pair.latest
        try:
            nvml.nvmlGpmMetricsGet(request)
        except nvml.NVMLError as error:
            _absent(asked, self._reason(fields.GPM_METRICS_CALL, error), into)
            return
        graphics, *slots = self._slots
        if graphics.nvmlReturn == nvml.NVML_SUCCESS and graphics.value == 0 and into.values.get(GPU_UTIL.otlp_name, 0):
            # Seen on RTX 5060 Ti: every metric 0 under load. Source: gpm-probe.py, a third party's.
            _absent(asked, reading.IMPLAUSIBLE, into)
            return
        for metric, slot in zip(asked, slots, strict=True):
            self._put(metric, slot, into)

    def _ask(self, asked: tuple[GpmMetric, ...]) -> None:
        """Write the metric ids to the request once; NVML fills the other members of each slot at every call."""
        # The engine's own activity is always requested: it shows whether the other values are plausible.
        ids = [GRAPHICS.metric_id, *(metric.metric_id for metric in asked)]
        self._request.numMetrics = len(ids)
        self._asked, self._slots = asked, self._request.metrics[: len(ids)]
        for slot, metric_id in zip(self._slots, ids, strict=True):
            slot.metricId = metric_id

    def _put(self, metric: GpmMetric, slot: Any, into: GpuValues) -> None:
        if slot.nvmlReturn != self._nvml.NVML_SUCCESS:
            into.put(metric.row, None, self._codes.reason(slot.nvmlReturn))
        elif not math.isfinite(slot.value) or not is_available(slot.value):
            into.put(metric.row, None)
        elif slot.value > metric.limit:
            self._failed(fields.GPM_METRICS_CALL, reading.IMPLAUSIBLE)
            into.put(metric.row, None, reading.IMPLAUSIBLE)
        else:
            into.put(metric.row, slot.value * metric.factor)

    def _reason(self, call: str, error: Any) -> str:
        if not self._codes.expected(error.value):
            self._failed(call, error_name(error))
        if self._codes.lost(error.value):
            raise LostGpuError
        return self._codes.reason(error.value)

    def _free(self, pair: SamplePair) -> None:
        for sample in (pair.earlier, pair.latest):
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlGpmSampleFree(sample)


@lru_cache(maxsize=2)
def _asked(wanted: frozenset[str]) -> tuple[GpmMetric, ...]:
    """The metrics of the wanted rows; the same ones at every interval."""
    return tuple(metric for metric in fields.GPM_METRICS if metric.row.otlp_name in wanted)


def _absent(asked: tuple[GpmMetric, ...], reason: str, into: GpuValues) -> None:
    for metric in asked:
        into.put(metric.row, None, reason)
