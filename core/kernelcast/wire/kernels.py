"""Names of kernels: one identity for each across runs and hosts, its label for Prometheus, and its class.

The probe and the exporter call `normalise` for each new kernel, and `variant` for each use. All functions are pure.

The identity is the normalised signature: the demangled name with its parameters, because a Kineto trace has no
mangled names. A name stays mangled only where a process has no C++ runtime. A label is the beginning of the
signature, for people, and a hash of all of it: of 170 names in one real trace, 41 share their first 80 characters.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

OTHER: Final = "other"
"""The `kernel` label of all kernels beyond the limit of kernels for a program and GPU (`exporter.kernels`).

The probe uses it as the signature of kernels beyond its own limit; for collectives that is `OTHER_COLLECTIVES`.
"""
OTHER_COLLECTIVES: Final = "other collectives"
WHOLE_GRAPHS: Final = "cuda graph (whole)"
"""Shown as the kernel of graphs that are recorded as a whole: all together, since a graph's number means nothing."""

HEAD_CHARACTERS: Final = 80
"""Characters of the signature in a label: people recognise a kernel by them."""
HASH_DIGITS: Final = 8
"""Hexadecimal digits of the hash in a label: two of 10,000 kernels have the same with a probability of 1 %."""
MAX_VARIANT_CHARACTERS: Final = 128
MAX_REGION_CHARACTERS: Final = 48
"""Longest name of a region in a variant; the launch configuration and the type need the rest."""

COMPUTE: Final = "compute"
COLLECTIVE: Final = "collective"
MEMORY: Final = "memory"

# What `normalise` replaces: anonymous namespaces (`_GLOBAL__N__5c1…`), addresses (`0x7f12ab34`), numbers of generated
# kernels (`triton_poi_fused_add_3`). Numbers of hand-written kernels (`triton_matmul_128_64`) distinguish kernels.
_ANONYMOUS: Final = re.compile(r"_GLOBAL__N__[0-9A-Za-z_]*?(?=::|$)|_INTERNAL_[0-9a-f]{8}_[0-9A-Za-z_]*?(?=::|$)")
_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_INDUCTOR: Final = r"triton_(?:[a-z]{3}_)?fused\w*?|triton_(?:poi|red|per|tem|for|spl|unk)_?"
_GENERATED: Final = re.compile(rf"(?P<stem>\b(?:{_INDUCTOR}|\w*fusion))(?:[_.]\d+)+(?=\b|$)")
_SPACE: Final = re.compile(r"\s+")
# A mangled name has the length of a namespace before it: `39_GLOBAL__N__1f2e3d4c_…`.
_GENERATED_NAMESPACE: Final = re.compile(r"(?<!\d)(\d{1,5})(?=_GLOBAL__N_|_INTERNAL_)")
_SHORTEST_NAMESPACE: Final = len("_INTERNAL_")

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
"""A kernel waits for peers where its name, in lower case and without `_`, contains both words of a rule.

A rule's word begins where a word of the name begins (`ncclDev`, not `trunc_clamp`) and lies within one identifier, so
that it is in mangled and demangled names alike. `allreduce` alone would also match reductions within one GPU.
"""
LOCAL_RULES: Final = (("triton", "fused"),)
"""Names that are never of a collective: Inductor names a fused kernel after the operators around it."""
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
    anonymous = "(anonymous namespace)"
    text = _with_namespaces(name, anonymous) if name.startswith("_Z") else _ANONYMOUS.sub(anonymous, name)
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
    words = _Words(_with_namespaces(signature, ""))
    if words.match_any(COLLECTIVE_RULES) and not words.match_any(LOCAL_RULES):
        return COLLECTIVE
    if _MEMORY.search(signature):
        return MEMORY
    return COMPUTE


class _Words:
    """A name in lower case without `_`, and the places where its words begin."""

    def __init__(self, name: str) -> None:
        plain = name if name.isascii() else name.encode("ascii", "replace").decode()
        pairs = [(before, one) for before, one in zip(f" {plain}", plain, strict=False) if one != "_"]
        self._text = "".join(one for _, one in pairs).lower()
        self._begins = [not before.isalpha() or (before.islower() and one.isupper()) for before, one in pairs]

    def match_any(self, rules: tuple[tuple[str, str], ...]) -> bool:
        return any(self._contains(first) and self._contains(second) for first, second in rules)

    def _contains(self, word: str) -> bool:
        place = self._text.find(word)
        while place >= 0 and word and not self._begins[place]:
            place = self._text.find(word, place + 1)
        return place >= 0


def _with_namespaces(name: str, replacement: str) -> str:
    """The name with this in place of each namespace that the compiler made of the source file's name.

    They are recognised by the length before them: those of a mangled name.
    """
    pieces, position = [], 0
    for begin, end in _generated_namespaces(name):
        pieces += [name[position:begin], replacement]
        position = end
    return "".join(pieces) + name[position:]


def _generated_namespaces(mangled: str) -> Iterator[tuple[int, int]]:
    position = 0
    for match in _GENERATED_NAMESPACE.finditer(mangled):
        if match.start() < position:
            continue
        # In `3c1039_GLOBAL__N__…` the namespace `c10` and the length 39 stand together: the longest length that fits.
        digits = match[1]
        lengths = [(begin, int(digits[begin:])) for begin in range(len(digits))]
        fits = (one for one in lengths if _SHORTEST_NAMESPACE <= one[1] <= len(mangled) - match.end())
        begin, length = next(fits, lengths[0])
        position = match.end() + length
        yield match.start() + begin, position
