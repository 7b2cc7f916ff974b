"""Exit codes of commands, and the error message on standard error that precedes one; `command` calls it."""

import sys
from typing import Final

from kernelcast.runtime.settings.masking import without_userinfo
from kernelcast.runtime.terminal import printable
from kernelcast.wire.errors import BrokerAccessError, ConfigurationError, KernelcastError

EXIT_RUN_TIME: Final = 1
EXIT_CONFIGURATION: Final = 2
EXIT_INCOMPLETE: Final = 3
"""All of the input that can be read was used, but that is less than 99 % of it, or its end is missing."""


def report(error: KernelcastError) -> int:
    """Print an error on standard error, a line for each problem; returns the exit code that it means."""
    for line in str(error).splitlines() or [type(error).__name__]:
        sys.stderr.write(f"kernelcast: {printable(without_userinfo(line))}\n")
    return EXIT_CONFIGURATION if isinstance(error, ConfigurationError | BrokerAccessError) else EXIT_RUN_TIME
