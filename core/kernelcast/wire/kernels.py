"""Names of kernels: one identity for each across runs and hosts, its label for Prometheus, and its class.

The probe and the exporter call `normalise` for each new kernel, and `variant` for each use. All functions are pure.
"""

# The identity is the normalised, demangled, full signature, because a Kineto trace has no mangled names. The label is
# its readable head and a hash of the whole: of 170 names in one real trace, 41 share their first 80 characters.

import hashlib
import re
from functools import lru_cache
from typing import Final

NORMALISATION_VERSION: Final = 1
"""Changes whenever `normalise` would give an existing kernel another identity."""

OTHER: Final = "other"
"""The `kernel` label of all kernels beyond the limit of kernels for a program and GPU (`exporter.kernels`)."""

HEAD_CHARACTERS: Final = 80
"""Of the signature, in a label: people recognise a kernel by it."""
HASH_DIGITS: Final = 8
"""Hexadecimal digits of the hash in a label: two of 10,000 kernels have the same with a probability of 1 %."""
MAX_VARIANT_CHARACTERS: Final = 128
MAX_REGION_CHARACTERS: Final = 48
"""Of the region's name in a variant: a long one leaves room for the rest."""

COMPUTE: Final = "compute"
COLLECTIVE: Final = "collective"
MEMORY: Final = "memory"

# What `normalise` replaces: anonymous namespaces (`_GLOBAL__N__5c1…`), addresses (`0x7f12ab34`), numbers of generated
# kernels (`triton_poi_fused_add_3`).
_ANONYMOUS: Final = re.compile(r"_GLOBAL__N__[0-9A-Za-z_]*?(?=::|$)|_INTERNAL_[0-9a-f]{8}_[0-9A-Za-z_]*?(?=::|$)")
_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_GENERATED: Final = re.compile(r"(?P<stem>\b(?:triton_\w+?|\w*fusion))(?:[_.]\d+)+(?=\b|$)")
_SPACE: Final = re.compile(r"\s+")
OTHER_COLLECTIVES: Final = "other collectives"
"""The signature of collectives that found no room among the kernels of a process; `OTHER` is that of all others."""

COLLECTIVE_RULES: Final = (
    (OTHER_COLLECTIVES, ""),
    # without a GPU: PyTorch over gloo, timed by the program itself
    ("gloo", "allreduce"),
    ("gloo", "broadcast"),
    ("gloo", "allgather"),
    # NCCL and what replaces it
    ("nccl", ""),
    ("rccl", ""),
    ("msccl", ""),
    ("nvshmem", ""),
    # all-reduce in one step or two: vLLM, SGLang, FlashInfer, TensorRT-LLM, PyTorch's symmetric memory, AITER, XLA
    ("oneshot", "allreduce"),
    ("twoshot", "allreduce"),
    ("allreducefusionkernel", "stage"),
    ("crossdevice", "reduce"),
    ("crossdevice", "allgather"),
    ("cubemesh", "allreduce"),
    ("multimem", "reduce"),
    ("multimem", "allgather"),
    ("lamport", "allgather"),
    ("lamport", "reducescatter"),
    ("lamport", "rmsnorm"),
    ("streamexecutor", "allreducekernel"),
    # tokens to the GPUs of their experts and back: DeepEP, mori, pplx, TensorRT-LLM
    ("deepep", "intranode"),
    ("deepep", "internode"),
    ("deepep", "dispatchimpl"),
    ("deepep", "combineimpl"),
    ("deepep", "barrier"),
    ("epdispatch", "intranode"),
    ("epdispatch", "internode"),
    ("epdispatch", "lowlatency"),
    ("epcombine", "intranode"),
    ("epcombine", "internode"),
    ("epcombine", "lowlatency"),
    ("epcombine", "barrier"),
    ("a2adispatch", "kernel"),
    ("a2acombine", "kernel"),
)
"""A kernel waits for peers where its name, in lower case and without `_`, holds both words of a rule.

Words are plain and lie within one identifier, so that a rule holds for mangled and demangled names alike. General words
such as `allreduce` alone would also match reductions within one GPU.
"""
LOCAL_RULES: Final = (("triton", "fused"),)
"""Names that are never of a collective: Inductor names a fused kernel after the operators around it."""
# In a mangled name, the length of a namespace stands before it: `30_GLOBAL__N__0000…`.
_GENERATED_NAMESPACE: Final = re.compile(r"(?<!\d)(\d{1,5})(?=_GLOBAL__N_|_INTERNAL_)")
_MEMORY: Final = re.compile(
    r"memcpy|memset|direct_copy_kernel|CatArrayBatchedCopy|\bcopy_kernel|FillFunctor|fillBuffer|copyBuffer",
    re.IGNORECASE,
)


@lru_cache(maxsize=16_384)
def normalise(name: str) -> str:
    """Return the signature without parts that change from build to build: generated namespaces, addresses and numbers.

    Inductor and XLA number their fused kernels in compile order (`triton_poi_fused_add_3`, `loop_add_fusion_12`), so
    the same number means another kernel in the next run; the stem before the number is kept.
    """
    text = _ANONYMOUS.sub("(anonymous namespace)", name)
    text = _ADDRESS.sub("0x", text)
    text = _GENERATED.sub(lambda match: match["stem"], text)
    return _SPACE.sub(" ", text).strip()


def kernel_id(signature: str) -> int:
    """A 64-bit identity of a normalised signature."""
    return int.from_bytes(hashlib.blake2b(signature.encode(), digest_size=8).digest(), "big")


def variant(grid: str = "", block: str = "", *, shared_memory_bytes: int = 0, region: str = "", dtype: str = "") -> str:
    """Return the key of one use of a kernel: `grid|block|shared|region|dtype`, without empty fields at the end.

    Args:
        grid: Blocks, as `64x1x1`.
        block: Threads, as `128x1x1`.
        shared_memory_bytes: Per block.
        region: The part of the program that launched it.
        dtype: Type or size class of its data, if the signature does not contain it.

    Returns:
        At most 128 characters; empty if nothing is known.
    """
    shared = str(shared_memory_bytes) if shared_memory_bytes else ""
    parts = (grid, block, shared, region[:MAX_REGION_CHARACTERS], dtype)
    return "|".join(part.replace("|", "/") for part in parts).rstrip("|")[:MAX_VARIANT_CHARACTERS]


@lru_cache(maxsize=16_384)
def label(signature: str) -> str:
    """The value of the label `kernel`: up to 80 characters of the signature, `#`, 8 hex digits of its hash."""
    head = signature.removeprefix("void ")[:HEAD_CHARACTERS].rstrip()
    return f"{head}#{kernel_id(signature) >> (64 - 4 * HASH_DIGITS):0{HASH_DIGITS}x}"


@lru_cache(maxsize=16_384)
def kernel_class(signature: str) -> str:
    """`collective` for kernels that wait for peers, `memory` for those that only move data, else `compute`."""
    words = _without_generated_namespaces(signature).lower().replace("_", "")
    if _any_rule(COLLECTIVE_RULES, words) and not _any_rule(LOCAL_RULES, words):
        return COLLECTIVE
    if _MEMORY.search(signature):
        return MEMORY
    return COMPUTE


def _any_rule(rules: tuple[tuple[str, str], ...], words: str) -> bool:
    return any(first in words and second in words for first, second in rules)


def _without_generated_namespaces(mangled: str) -> str:
    """The name without namespaces that the compiler made of the source file's name; a demangled name has none."""
    pieces, position = [], 0
    for match in _GENERATED_NAMESPACE.finditer(mangled):
        if match.start() >= position:
            pieces.append(mangled[position : match.start()])
            position = match.end() + int(match[1])
    return "".join(pieces) + mangled[position:]
