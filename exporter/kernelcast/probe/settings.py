"""Settings of one probe, from arguments and environment; an unusable value is replaced: a probe stops no program.

`activation/current.py` makes them at `start`, and passes them to `Probe`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kernelcast.probe.conditions.orders import OFF
from kernelcast.probe.recording.recorder import plain
from kernelcast.probe.trial_budget import SHARE, share_from
from kernelcast.tuning.experiment import Rules
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import LIVE, PROGRAM_PATTERN, SOURCES

# Bounds of the interval between two reports.
SHORTEST_SECONDS: Final = 0.02
LONGEST_SECONDS: Final = 3600.0
MAX_VERSION_CHARACTERS: Final = 128
MAX_METHOD_CHARACTERS: Final = 64
MAX_IMAGE_CHARACTERS: Final = 200
"""Of its end, where the tag and the digest are."""
IMAGE_VARIABLES: Final = ("KERNELCAST_IMAGE", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
"""The last two are set by Apptainer and Singularity in each of their containers."""
RANK_VARIABLES: Final = (
    "KERNELCAST_RANK",
    "RANK",  # torchrun
    "OMPI_COMM_WORLD_RANK",  # Open MPI
    "PMIX_RANK",  # PMIx: Open MPI 5, PRRTE, Slurm's
    "PMI_RANK",  # MPICH, Intel MPI
    "MV2_COMM_WORLD_RANK",  # MVAPICH2
    "JAX_PROCESS_ID",  # jax.distributed
    "SLURM_PROCID",  # last: it is 0 in every program that is started without srun
)


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Settings of one probe.

    Attributes:
        program: The user's name for the job.
        rank: Its rank; empty for a single process.
        socket_path: The exporter's socket.
        interval_seconds: Time between frames.
        source: Empty for a live GPU; `cpu` or `simulated` for a program without one.
        method: How kernels are measured: `auto`, `cupti`, `event`, `count`, or `manual`: by the program itself.
        code_version: The program's version; a hint for another one is refused.
        devices: The devices in CUDA's order; None asks the driver at the first frame.
        state_directory: Folder of this node's journals of tuning; empty remembers nothing.
        rules: Limits of the trial of a hinted value.
        trial_share: Share of the running time that trials may cost.
        image: Image of its container; empty where it is not known.
    """

    program: str
    rank: str = ""
    socket_path: str = "/run/kernelcast/probe.sock"
    interval_seconds: float = 1.0
    source: str = LIVE
    method: str = "manual"
    code_version: str = ""
    devices: tuple[DeviceClaim, ...] | None = None
    state_directory: str = ""
    rules: Rules = field(default_factory=Rules)
    trial_share: float = SHARE
    image: str = ""


def program_name(arguments: Sequence[str], module: str = "") -> str:
    """Return the default name of a program: of its script, package or module, or `python -c`.

    Args:
        arguments: As in `sys.argv`.
        module: Name of the module that `python -m` runs; empty where it runs none.

    >>> program_name(["/jobs/train.py"]), program_name(["/lib/trainer/__main__.py"], "trainer.__main__")
    ('train', 'trainer')
    """
    script = arguments[0] if arguments else ""
    folder, _, file = script.rpartition("/")
    if file in {"", "-", "-c", "-m"}:  # a prompt, a program from a pipe or the command line, a module that is not found
        return "python -c" if file == "-c" else "python"
    named = module.removesuffix("__main__").rstrip(".")
    return named or (folder.rpartition("/")[2] if file == "__main__.py" else file.removesuffix(".py"))


def settings_from(
    program: str | None, rank: str | int | None, environ: Mapping[str, str], default: str = "program"
) -> ProbeSettings:
    """Settings from arguments and environment; an unusable value is replaced, because a probe stops no program.

    Args:
        program: Its name; None takes `KERNELCAST_PROGRAM`, else the default.
        rank: Its rank; None takes the first of `RANK_VARIABLES` that is set.
        environ: The environment.
        default: Its name where neither gives one.
    """
    named = plain(str(program or environ.get("KERNELCAST_PROGRAM") or default))
    clean = "".join(character for character in named if PROGRAM_PATTERN.fullmatch(character))[:128] or "program"
    ranks = (environ.get(name) for name in RANK_VARIABLES)
    shown = str(rank) if rank is not None else next(filter(None, ranks), "")
    try:
        interval_seconds = float(environ.get("KERNELCAST_PROBE_INTERVAL_SECONDS", "1"))
    except ValueError:
        interval_seconds = 1.0
    return ProbeSettings(
        program=clean,
        rank=plain(shown[:64]),
        state_directory=state_directory(environ),
        socket_path=environ.get("KERNELCAST_SOCKET") or "/run/kernelcast/probe.sock",
        interval_seconds=min(max(SHORTEST_SECONDS, interval_seconds), LONGEST_SECONDS),  # in this order NaN loses
        trial_share=share_from(environ),
        code_version=plain(environ.get("KERNELCAST_CODE_VERSION", "")[:MAX_VERSION_CHARACTERS]),
        image=plain(next(filter(None, map(environ.get, IMAGE_VARIABLES)), "")[-MAX_IMAGE_CHARACTERS:]),
    )


def state_directory(environ: Mapping[str, str]) -> str:
    """The folder of this node's memory: `KERNELCAST_TUNING_DIRECTORY`, else that of the user's state; `off` is none."""
    chosen = environ.get("KERNELCAST_TUNING_DIRECTORY", "")
    if chosen:
        return "" if chosen.strip().lower() in OFF else chosen
    home = environ.get("XDG_STATE_HOME") or (f"{environ['HOME']}/.local/state" if environ.get("HOME") else "")
    return f"{home}/kernelcast/tuning" if home.startswith("/") else ""


def known_source(source: str) -> str:
    """A source that the contract knows; anything else is no live GPU, so it counts as simulated."""
    return source if source in SOURCES else "simulated"
