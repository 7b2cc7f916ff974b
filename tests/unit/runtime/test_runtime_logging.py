"""Logs: one handler for all lines, two forms, repeats limited, secrets hidden."""

import io
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog

from kernelcast.runtime.log_repeats import RepeatLimit
from kernelcast.runtime.logging import configure, get_logger
from kernelcast.runtime.settings.service import LogSettings


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def logged(
    form: Literal["logfmt", "json"] = "json", level: Literal["debug", "info", "warning"] = "info"
) -> io.StringIO:
    stream = io.StringIO()
    configure(LogSettings(format=form, level=level), stream=stream)
    return stream


def test_json_lines_carry_message_level_logger_time_and_fields() -> None:
    stream = logged()

    get_logger("bridge").info("caught up", lag=0)

    line = json.loads(stream.getvalue())
    assert line.pop("ts").endswith("Z")
    assert line == {"event": "caught up", "level": "info", "logger": "bridge", "lag": 0}


def test_logfmt_lines_begin_with_time_and_level() -> None:
    stream = logged("logfmt")

    get_logger("bridge").warning("falling behind", lag=5, topic="a b", full=True)

    assert 'level=warning logger=bridge event="falling behind"' in stream.getvalue()
    assert 'topic="a b"' in stream.getvalue()
    assert "full=true" in stream.getvalue()
    assert stream.getvalue().startswith("ts=")


def test_library_lines_look_like_ours() -> None:
    stream = logged()

    logging.getLogger("kafka").error("broker %s is down", "a:1")

    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["logger"]) == ("broker a:1 is down", "error", "kafka")


def test_a_level_suppresses_lower_levels() -> None:
    stream = logged(level="warning")

    get_logger("bridge").info("caught up")
    logging.getLogger("kafka").info("connected")

    assert stream.getvalue() == ""


def test_fields_that_hold_secrets_are_hidden() -> None:
    stream = logged()

    get_logger("bridge").info("connecting", sasl_password="hunter2")

    assert "hunter2" not in stream.getvalue()


def test_an_exception_is_one_json_line() -> None:
    stream = logged()

    try:
        int("bad")
    except ValueError:
        get_logger("bridge").exception("failed")

    assert len(stream.getvalue().splitlines()) == 1
    assert json.loads(stream.getvalue())["exception"][0]["exc_type"] == "ValueError"


def test_an_exception_in_json_shows_no_values_of_variables() -> None:
    stream = logged()

    def log_in(password: str, properties: dict[str, str]) -> None:
        raise ValueError(f"refused, {len(password)} characters, {len(properties)} properties")

    try:
        log_in("hunter2", {"sasl.password": "hunter3"})
    except ValueError:
        get_logger("bridge").exception("failed")
        logging.getLogger("uvicorn.error").exception("failed as well")

    assert len(stream.getvalue().splitlines()) == 2
    assert "log_in" in stream.getvalue()
    assert "hunter" not in stream.getvalue()


def test_a_thread_that_ends_by_an_error_is_one_line_with_its_name() -> None:
    stream = logged()

    def fail() -> None:
        raise ValueError("refused")

    thread = threading.Thread(target=fail, name="backlog")
    thread.start()
    thread.join()

    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["level"], line["thread"]) == ("a thread ended by an error", "error", "backlog")
    assert line["exception"][0]["exc_value"] == "refused"


def test_a_repeating_line_passes_once_in_ten_seconds_with_the_number_of_suppressed_ones() -> None:
    seconds = [100.0]
    limit = RepeatLimit(lambda: seconds[0])
    record = logging.LogRecord("kafka", logging.WARNING, "", 0, "broker %s is down after %d ms", ("a", 17), None)
    again = logging.LogRecord("kafka", logging.WARNING, "", 0, "broker %s is down after %d ms", ("a", 18), None)
    other = logging.LogRecord("kafka", logging.WARNING, "", 0, "broker %s is down after %d ms", ("b", 17), None)

    passed = [limit.filter(record), limit.filter(again), limit.filter(again), limit.filter(other)]
    seconds[0] += 10
    later = limit.filter(again)

    assert passed == [True, False, False, True]
    assert later
    assert again.__dict__["suppressed"] == 2


def test_debug_lines_are_not_limited() -> None:
    stream = logged(level="debug")

    for _ in range(3):
        get_logger("bridge").debug("tick")

    assert len(stream.getvalue().splitlines()) == 3


class EvictingLines(OrderedDict[Any, Any]):
    """Loses each line at once, as if another thread had logged a thousand others."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        super().__delitem__(key)


def test_a_line_passes_even_if_another_thread_makes_the_limit_forget_it() -> None:
    limit = RepeatLimit(lambda: 0.0)
    limit._seen = EvictingLines()
    assert limit.filter(logging.LogRecord("name", logging.INFO, "path", 1, "text", None, None))


def test_the_next_line_that_passes_shows_the_count() -> None:
    stream = logged()
    for handler in logging.getLogger().handlers:
        handler.filters[:] = [RepeatLimit(iter([0.0, 1.0, 11.0]).__next__)]

    for number in range(3):
        get_logger("bridge").warning("dropped", count=number)

    first, second = map(json.loads, stream.getvalue().splitlines())
    assert "suppressed" not in first
    assert (second["suppressed"], second["count"]) == (1, 2)
