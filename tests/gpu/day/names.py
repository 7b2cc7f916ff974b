"""Settings and metrics of the probe that the steps use, each in one place."""

from typing import Final

CUPTI: Final = {"KERNELCAST_CUPTI": "1"}
"""Switches CUPTI on."""
STATE: Final = "kernelcast_probe_state"
ACTIVE: Final = "active"
BACKED_OFF: Final = "backed_off"
MEASURED_SECONDS: Final = "kernelcast_probe_measured_seconds_total"
"""Time in which records were enabled."""
COST_RATIO: Final = "kernelcast_probe_cost_ratio"
"""Step time with measuring over step time without, as the probe measures it; unknown for a program without steps."""
LAUNCHES: Final = "cuda_kernel_launches_total"
GRAPH_LAUNCHES: Final = "cuda_kernel_graph_launches_total"
COPIES: Final = "cuda_memcpy_operations_total"
WAITS: Final = "cuda_sync_calls_total"
LOST: Final = "kernelcast_probe_dropped_records_total"
GPU_PHASE_SECONDS: Final = "kernelcast_program_gpu_phase_seconds_total"
GPU_PHASE_STEPS: Final = "kernelcast_program_gpu_phase_steps_total"
OVERHEAD: Final = "kernelcast_probe_overhead_seconds_total"
DEVICE_MEMORY_BOUND_BYTES: Final = 128 << 20
"""Largest device memory that CUPTI may take: an H100 had 86 MiB with 815,000 kernels a second from graphs."""
