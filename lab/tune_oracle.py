"""The command `python -m lab.tune_oracle`: answers measurements from a recording, for `lab.tune_replay`."""

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from kernelcast.tuning.formats import kernel_tuner
from kernelcast.wire.errors import ConfigurationError, KernelcastError
from kernelcast.wire.options import OptionParser
from lab.replay.oracle import Disturbance, Session
from lab.replay.server import READY, LogFile, serve
from lab.replay.signals import Stopped, stopping

DESCRIPTION: Final = """\
Answer measurements from a recording, so that a tuner can be tried without the device. One connection replays one seed.
Requests and answers are JSON, one object a line: space, measure, verdict, end. Everything else is refused.
"""
EPILOG: Final = """\
example:
  python -m lab.tune_oracle convolution_A4000.json.gz --socket /tmp/oracle --log oracle.jsonl &
  python -m lab.tune_replay --measure unix:/tmp/oracle --seeds 3 > runs.json
"""


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    Raises:
        ConfigurationError: An option, the recording or a path cannot be used.
    """
    options = _parser().parse_args(arguments)
    _check(options)
    recording = kernel_tuner.read(options.cachefile)
    disturbance = Disturbance(options.drift, options.field, options.field_seed)
    with ExitStack() as stack:
        log = LogFile(stack.enter_context(_opened(options.log or Path(os.devnull))))
        try:
            with stopping():
                serve(
                    options.socket,
                    lambda log: Session(recording, options.budget, log, disturbance),
                    log,
                    stop=threading.Event(),
                    ready=_say_ready,
                )
        except Stopped:
            pass
    return 0


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"the log {path} cannot be written: {error}; give another path") from None


def _say_ready() -> None:
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()


def _check(options: argparse.Namespace) -> None:
    if options.budget < 1:
        raise ConfigurationError(f"--budget is {options.budget}; the minimum is 1")
    if not -0.1 <= options.drift <= 0.1:
        raise ConfigurationError(f"--drift is {options.drift}; it is a share per launch between -0.1 and 0.1")
    if not 0 <= options.field <= 5:
        raise ConfigurationError(f"--field is {options.field}; it is between 0 and 5")


def _parser() -> argparse.ArgumentParser:
    parser = OptionParser(
        prog="python -m lab.tune_oracle",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("cachefile", type=Path, help="Kernel Tuner cache file of a searched space, plain or .json.gz")
    add("--socket", type=Path, required=True, help="path of the Unix socket to make")
    add("--budget", type=int, default=200, help="different configurations for each seed (default: 200)")
    add("--log", type=Path, help="write every request with its answer to this file, one JSON object a line")
    add("--drift", type=float, default=0.0, help="change of all times for each launch; 0.001 adds 0.1 %% (default: 0)")
    add("--field", type=float, default=0.0, help="strength of a smooth field that multiplies the times (default: 0)")
    add("--field-seed", type=int, default=0, help="determines the field (default: 0)")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KernelcastError as error:
        sys.stderr.write(f"kernelcast: {error}\n")
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)
