"""Structured logs on standard error: a constant message, its data in fields; logfmt or JSON."""

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from kernelcast.runtime.settings import LogSettings

_QUIET = ("uvicorn.access",)


def configure(settings: LogSettings, *, stream: TextIO | None = None) -> None:
    """Send this process's logs, those of libraries included, to `stream` (standard error) in the asked form."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(settings.format)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger named after its module."""
    logger: FilteringBoundLogger = structlog.stdlib.get_logger(name)
    return logger


def _renderer(form: str) -> Processor:
    if form == "json":
        return structlog.processors.JSONRenderer()
    return structlog.processors.LogfmtRenderer(key_order=["ts", "level", "event"], drop_missing=True)
