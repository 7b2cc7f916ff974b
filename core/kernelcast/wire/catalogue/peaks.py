"""Dense peaks of GPUs in floating-point operations a second, by model as NVML names it and precision.

NVIDIA's sheets give most figures with sparsity, which is twice the dense one; these are the dense ones. A model that is
not here has no peak, and its programs no share of one.
"""

from dataclasses import dataclass
from typing import Final

BF16, FP8, TF32 = "bf16", "fp8", "tf32"
"""`bf16` is fp16's, too."""


@dataclass(frozen=True, slots=True)
class Peak:
    """Peaks of models.

    Attributes:
        models: A regular expression of the whole name.
        bf16: Dense operations a second in bf16 and fp16.
        fp8: In fp8; 0 if it has none.
        tf32: In tf32; 0 if it has none.
        source: Where the figures come from.
    """

    models: str
    bf16: float
    fp8: float
    tf32: float
    source: str

    def of(self, precision: str) -> float:
        """The peak in a precision; 0 if there is none."""
        return {BF16: self.bf16, FP8: self.fp8, TF32: self.tf32}[precision]


PEAKS: Final = (
    Peak("NVIDIA (H100 80GB HBM3|H100 SXM.*|H200)", 989.4e12, 1978.9e12, 494.7e12, "H100 and H200 data sheets, SXM"),
    Peak("NVIDIA H100 PCIe", 756e12, 1513e12, 378e12, "H100 data sheet, PCIe"),
    Peak("NVIDIA A100.*", 312e12, 0, 156e12, "A100 data sheet"),
    Peak("NVIDIA L40S", 362e12, 733e12, 183e12, "L40S data sheet"),
    Peak("NVIDIA L4", 121e12, 242.5e12, 60e12, "L4 data sheet"),
    Peak("NVIDIA B200", 2250e12, 4500e12, 1125e12, "HGX B200 data sheet, a GPU of eight"),
    Peak("NVIDIA GB200", 2500e12, 5000e12, 1250e12, "GB200 NVL72 data sheet, a GPU of 72"),
    Peak("Tesla V100-SXM2.*", 125e12, 0, 0, "V100 data sheet, SXM2"),
    Peak("(NVIDIA|Tesla) T4", 65e12, 0, 0, "T4 data sheet"),
)
PRECISIONS: Final = (BF16, FP8, TF32)
