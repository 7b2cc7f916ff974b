"""Reads a daemon's settings again on SIGHUP, and names the changed ones that only a restart applies."""

from collections.abc import Callable, Collection
from typing import TypeVar

from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.settings.service import ServiceSettings
from kernelcast.wire.errors import ConfigurationError

S = TypeVar("S", bound=ServiceSettings)

_log = get_logger(__name__)


def reload(started: S, read: Callable[[], S], change: Callable[[S], None], *, reloaded: Collection[str]) -> None:
    """Apply the settings that can change while the daemon runs, and log those that cannot; wrong ones change nothing.

    Args:
        started: The settings at the daemon's start, not those of the last reload: a setting that needs a restart is
            logged at every reload until the restart.
        read: Reads the settings again; raises ConfigurationError if they are invalid.
        change: Applies them; if it raises ConfigurationError, it has changed nothing.
        reloaded: Names of the settings that `change` applies.
    """
    try:
        settings = read()
        change(settings)
    except ConfigurationError as error:
        _log.error("settings are wrong; the old ones stay", reason=str(error))
        return
    if waiting := restart_needed(started, settings, reloaded=reloaded):
        _log.warning("some settings take effect at the next start only", settings=",".join(waiting))
    _log.info("settings read again", log_level=settings.log.level)


def restart_needed(started: S, now: S, *, reloaded: Collection[str]) -> tuple[str, ...]:
    """Return the names of the changed settings that are only read at a start."""
    others = [name for name in type(started).model_fields if name not in reloaded]
    return tuple(name for name in others if getattr(now, name) != getattr(started, name))
