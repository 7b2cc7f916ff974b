"""Structured logs on standard error: a constant message, its data in fields; logfmt or JSON.

A daemon's command calls `configure` once; each module calls `get_logger` when it is imported, or when it needs one. Our
own lines go through structlog, those of libraries (uvicorn, librdkafka) through the standard library. Both end in one
handler, so they look alike, and both are limited when they repeat.
"""

import logging
import sys
import threading
import time
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

import structlog
from structlog.processors import ExceptionRenderer
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

from kernelcast.runtime.log_repeats import RepeatLimit
from kernelcast.runtime.settings.masking import MASKED, is_secret, without_userinfo
from kernelcast.runtime.settings.service import LogSettings

_CHATTY: Final = ("uvicorn.error", "uvicorn.access", "asyncio")
"""Libraries whose `info` is our `debug`."""
_JSON_TRACEBACKS: Final = ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
"""Without the values of local variables, which structlog shows by default; passwords are among them."""


def configure(settings: LogSettings, *, stream: TextIO | None = None) -> None:
    """Send this process's logs to `stream` or to standard error: those of libraries and ended threads, too."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    handler = _StandardError() if stream is None else logging.StreamHandler(stream)
    handler.addFilter(RepeatLimit(time.monotonic))
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, _timestamp()],
            processors=[_suppressed, ProcessorFormatter.remove_processors_meta, *_rendering(settings.format)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING) if level > logging.DEBUG else level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            _timestamp(),
            _hide_secrets,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    threading.excepthook = _log_ended_thread


def keep_off_standard_output() -> None:
    """Send our lines to standard error until `configure` is called; structlog would print them between the results."""
    if not structlog.is_configured():
        structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def get_logger(name: str) -> BoundLogger:
    """A logger; lines are `logger.info("constant message", field=value)`."""
    logger: BoundLogger = structlog.stdlib.get_logger(name)
    return logger


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes each line to the `sys.stderr` of that moment: tests and daemons replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _stream: TextIO) -> None:
        raise AttributeError("standard error is looked up for each line")


def _log_ended_thread(end: threading.ExceptHookArgs) -> None:
    """Log the error that ends a thread, so that no loop stops unnoticed; Python prints it to standard error."""
    if end.exc_type is SystemExit or end.exc_value is None:
        return
    name = end.thread.name if end.thread is not None else ""
    get_logger(__name__).error("a thread ended by an error", thread=name, exc_info=end.exc_value)


def _timestamp() -> Processor:
    return structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts")


def _suppressed(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the number of equal lines that `RepeatLimit` has held back since the last one."""
    held_back = getattr(event.get("_record"), "suppressed", 0)
    if held_back:
        event["suppressed"] = held_back
    return event


def _hide_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name in event:
        if is_secret(name):
            event[name] = MASKED
    return event


def _hide_userinfo(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take user and password out of every address: those of libraries' lines and of tracebacks, too."""
    for name, value in event.items():
        event[name] = _masked(value)
    return event


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return without_userinfo(value)
    if isinstance(value, dict):
        return {name: _masked(item) for name, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list | tuple) else value


def _rendering(form: str) -> list[Processor]:
    if form == "json":
        return [_JSON_TRACEBACKS, _hide_userinfo, structlog.processors.JSONRenderer(default=str)]
    order = ["ts", "level", "logger", "event"]
    return [
        structlog.processors.format_exc_info,
        _hide_userinfo,
        structlog.processors.LogfmtRenderer(key_order=order, drop_missing=True, bool_as_flag=False),
    ]
