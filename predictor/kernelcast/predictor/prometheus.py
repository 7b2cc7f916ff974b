"""Client of Prometheus' HTTP API: the past of series, page by page, for backtests and for series without a past.

Only expressions whose value at a moment rests on samples up to that moment are accepted. A backtest that reads the
future would score itself too well.

API: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import http.client
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import orjson

from kernelcast.predictor.access import HttpAccess, basic
from kernelcast.predictor.arrays import Floats
from kernelcast.runtime.web.requests import beginning, failure, open_url
from kernelcast.wire.errors import ConfigurationError, PrometheusError

MAX_POINTS: Final = 11_000
"""Points of one series that Prometheus returns in one answer."""
MAX_TOTAL_POINTS: Final = 5_000_000
"""Points of one series in all pages of one request."""
MAX_ANSWER_BYTES: Final = 1 << 29
"""Largest answer that is read, 512 MiB: it is held in memory as a whole."""
TIMEOUT_SECONDS: Final = 60.0
"""Longest silence."""
WHOLE_SECONDS: Final = 600.0
"""Time for a whole answer."""

_OF_PROXIES: Final = frozenset({401, 403, 407, 429, 500, 502, 503, 504})
"""Statuses that a proxy before a Prometheus gives in its own words."""

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Sorted pairs of name and value; the metric's name is the label `__name__`."""

_Read = TypeVar("_Read")
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`|#[^\n]*')
_FUTURE: Final = re.compile(r"@|\boffset[\s(]*-", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class RangeSeries:
    """Values of one series in a range.

    Attributes:
        labels: Its labels.
        seconds: float64, shape (k,), Unix times, ascending; moments without a value are absent.
        values: float64, shape (k,); may be infinite or NaN, as Prometheus has them.
    """

    labels: Labels
    seconds: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Moments `start`, `start + step`, … up to `end`.

    Attributes:
        start_seconds: The first moment, Unix time.
        end_seconds: The last moment, at most.
        step_seconds: Distance of the moments.
    """

    start_seconds: float
    end_seconds: float
    step_seconds: float

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            ConfigurationError: The range is empty, its step is not above 0, or it has too many moments.
        """
        if not self.step_seconds >= 0.001:
            raise ConfigurationError(f"the step is {self.step_seconds:g} s; the minimum is 0.001 s; raise it")
        if not self.end_seconds >= self.start_seconds:
            raise ConfigurationError(
                f"the end {self.end_seconds:.15g} lies before the start {self.start_seconds:.15g}; exchange them"
            )
        if self.points > MAX_TOTAL_POINTS:
            raise ConfigurationError(
                f"the range has {self.points} steps of {self.step_seconds:g} s; the limit is {MAX_TOTAL_POINTS}; "
                "choose a longer step or a shorter range"
            )

    @property
    def points(self) -> int:
        """Number of moments."""
        return (self._milliseconds(self.end_seconds) - self._milliseconds(self.start_seconds)) // self._milliseconds(
            self.step_seconds
        ) + 1

    def pages(self, points: int) -> Iterator["TimeRange"]:
        """Consecutive parts of at most `points` moments, on the same grid."""
        for begin in range(0, self.points, points):
            last = min(begin + points, self.points) - 1
            yield TimeRange(self._moment(begin), self._moment(last), self.step_seconds)

    def _moment(self, number: int) -> float:
        return (self._milliseconds(self.start_seconds) + number * self._milliseconds(self.step_seconds)) / 1000.0

    @staticmethod
    def _milliseconds(seconds: float) -> int:
        """Prometheus counts in milliseconds; so pages meet exactly."""
        return round(seconds * 1000.0)


class PrometheusClient:
    """Reads ranges and label sets from one Prometheus, or a server with its API; keeps no state between calls."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        whole_seconds: float = WHOLE_SECONDS,
        points_per_page: int = MAX_POINTS,
        access: HttpAccess = HttpAccess(),  # noqa: B008  it is frozen
    ) -> None:
        """Prepare requests; nothing is sent yet.

        Args:
            url: Such as `http://prometheus:9090` or `https://user:password@host/prometheus`.
            timeout_seconds: Longest wait for one operation of the socket.
            whole_seconds: Longest wait for a whole answer.
            points_per_page: Points of one series in one answer; lower it for many series, to bound the memory.
            access: Credentials, certificates and the proxy; its credentials win over those of the URL.

        Raises:
            ConfigurationError: The URL is none.
        """
        parts = split_address(url)
        host = parts.netloc.rpartition("@")[2]
        self.address = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/json", "User-Agent": "kernelcast"} | _authorization(parts)
        self._timeout_seconds = timeout_seconds
        self._whole_seconds = whole_seconds
        self._points_per_page = min(points_per_page, MAX_POINTS)
        self._access = access

    def pages(self, query: str, time: TimeRange) -> Iterator[Sequence[RangeSeries]]:
        """Yield the range in parts, the oldest first; each part has the series that have values in it.

        Args:
            query: A PromQL expression that gives an instant vector or a number.
            time: The moments at which it is evaluated.

        Raises:
            ConfigurationError: The expression may read the future.
            PrometheusError: Prometheus is unreachable or refused the query.
        """
        refuse_future(query)
        for page in time.pages(self._points_per_page):
            data = self._ask(
                "query_range",
                {
                    "query": query,
                    "start": f"{page.start_seconds:.3f}",
                    "end": f"{page.end_seconds:.3f}",
                    "step": f"{page.step_seconds:.3f}",
                },
            )
            result = _member(data, "result", list, self.address)
            yield [self._readable(_series, series) for series in result]

    def query_range(self, query: str, time: TimeRange) -> list[RangeSeries]:
        """All series of a range, sorted by their labels; an empty list where nothing has a value.

        Raises:
            ConfigurationError: The expression may read the future.
            PrometheusError: Prometheus is unreachable or refused the query.
        """
        parts: dict[Labels, list[RangeSeries]] = {}
        for page in self.pages(query, time):
            for series in page:
                parts.setdefault(series.labels, []).append(series)
        return [
            RangeSeries(
                labels,
                np.concatenate([part.seconds for part in pages]),
                np.concatenate([part.values for part in pages]),
            )
            for labels, pages in sorted(parts.items())
        ]

    def query(self, query: str, *, at_seconds: float) -> list[RangeSeries]:
        """Evaluate an expression at one moment; a range selector such as `X[10m]` gives the samples themselves.

        Raises:
            ConfigurationError: The expression may read the future.
            PrometheusError: Prometheus is unreachable or refused the query.
        """
        refuse_future(query)
        data = self._ask("query", {"query": query, "time": f"{at_seconds:.3f}"})
        series = _member(data, "result", list, self.address)
        return [self._readable(_instant, sample) for sample in series]

    def series(self, matchers: Sequence[str], *, start_seconds: float, end_seconds: float) -> list[Labels]:
        """Label sets of the series that had samples in a range.

        Args:
            matchers: Selectors, such as `DCGM_FI_DEV_GPU_TEMP{gpu="0"}`; a series matches one of them.
            start_seconds: Unix time.
            end_seconds: Unix time.

        Raises:
            PrometheusError: Prometheus is unreachable or refused the query.
        """
        fields = {"match[]": list(matchers), "start": f"{start_seconds:.3f}", "end": f"{end_seconds:.3f}"}
        label_sets = self._ask("series", fields)
        if not isinstance(label_sets, list):
            raise PrometheusError(f"{self.address} answered without a list of series; is it the API of a Prometheus?")
        return sorted(self._readable(_labels, labels) for labels in label_sets)

    def _readable(self, read: Callable[[Any], _Read], document: Any) -> _Read:
        try:
            return read(document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PrometheusError(
                f"{self.address} answered with a series that cannot be read: {error!r}; is it the API of a Prometheus?"
            ) from error

    def _ask(self, path: str, fields: Mapping[str, str | Sequence[str]]) -> Any:
        """The `data` of an answer."""
        body = urllib.parse.urlencode(fields, doseq=True).encode()
        headers = self._headers | self._access.headers()
        request = urllib.request.Request(f"{self.address}/api/v1/{path}", data=body, headers=headers)  # noqa: S310  the constructor checked the scheme
        send = partial(open_url, whole_seconds=self._whole_seconds, with_proxy=self._access.with_proxy)
        context = self._access.context()
        try:
            with send(request, self._timeout_seconds, context) as answer:
                text = answer.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        if len(text) > MAX_ANSWER_BYTES:
            raise PrometheusError(
                f"the answer of {self.address} has more than {MAX_ANSWER_BYTES} bytes, the limit; select fewer series"
            )
        document = _document(text)
        if document.get("status") != "success":
            raise PrometheusError(self._other_server(text))
        return document.get("data")

    def _refused(self, error: urllib.error.HTTPError) -> PrometheusError:
        code, text = error.code, b""
        with error, suppress(OSError, http.client.HTTPException):
            text = error.read(65_536)
        reason = _document(text).get("error")
        if reason is None and code not in _OF_PROXIES:
            return PrometheusError(self._other_server(text, f"status {code} and "), status=code)
        shown = reason or beginning(text) or "no reason was given"
        message = f"{self.address} refused the query with status {code}: {shown}"
        if code in {401, 403}:
            message += "; give credentials: bearer_token_file, or user and password_file, or a client's certificate"
        return PrometheusError(message, status=code, retry_after_seconds=_seconds(error.headers.get("Retry-After")))

    def _other_server(self, text: bytes, status: str = "") -> str:
        shown = f'"{beginning(text)}"' if text.strip() else "nothing"
        return (
            f"{self.address} is no Prometheus: it answered {status}{shown}; correct the address, such as "
            "http://HOST:9090, or https://HOST/prometheus behind a proxy"
        )

    def _unreachable(self, error: Exception) -> PrometheusError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            return PrometheusError(
                f"{self.address} gave no answer within {self._timeout_seconds:g} s, or no whole answer within "
                f"{self._whole_seconds:g} s; choose a shorter range, a longer step or fewer series",
                is_away=True,
            )
        if isinstance(reason, ssl.SSLError):
            return PrometheusError(f"{self.address} offers no TLS that we can verify: {reason}; check its certificate")
        message = f"{self.address} cannot be reached: {failure(error)}; check address, port and network"
        return PrometheusError(message, is_away=isinstance(reason, OSError))


def refuse_future(query: str) -> None:
    """Refuse expressions whose value at a moment may rest on later samples.

    Raises:
        ConfigurationError: The expression has `@` or a negative `offset`.
    """
    match = _FUTURE.search(_QUOTED.sub(lambda quoted: " " if quoted[0].startswith("#") else '""', query))
    if match is not None:
        modifier = "@" if match[0] == "@" else "a negative offset"
        raise ConfigurationError(
            f"the query {query!r} has {modifier}, which can read samples later than the moment that is judged; "
            "remove it"
        )


def split_address(url: str) -> urllib.parse.SplitResult:
    """Parts of the address of a Prometheus.

    Raises:
        ConfigurationError: It is none. The message does not show a password.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname:
            return parts
    except ValueError:
        pass
    shown = f"***@{url.rpartition('@')[2]}" if "@" in url else url
    raise ConfigurationError(f"the address of Prometheus is {shown!r}; write it as http://HOST:PORT")


def _authorization(parts: urllib.parse.SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    user, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
    return {"Authorization": basic(user, password)}


def _seconds(retry_after: str | None) -> float:
    """Time of a header `Retry-After`; 0 where it has none, or a date, which needs clocks that agree."""
    return float(retry_after) if retry_after is not None and retry_after.strip().isdecimal() else 0.0


def _document(text: bytes) -> dict[str, Any]:
    """A JSON object; an empty one where the text is none."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _member(data: Any, name: str, kind: type, address: str) -> Any:
    member = data.get(name) if isinstance(data, dict) else None
    if not isinstance(member, kind):
        raise PrometheusError(f"{address} answered without {name}; is it the API of a Prometheus?")
    return member


def _series(series: Any) -> RangeSeries:
    points = series.get("values") or []
    if "histograms" in series and not points:
        raise PrometheusError(
            f"the query returns native histograms ({dict(_labels(series['metric']))}); "
            "use histogram_quantile or another function that gives numbers"
        )
    seconds = np.array([float(time) for time, _ in points], np.float64)
    values = np.array([float(value) for _, value in points], np.float64)
    return RangeSeries(_labels(series["metric"]), seconds, values)


def _instant(series: Any) -> RangeSeries:
    """One series of an instant vector, or of a range vector."""
    points = series["values"] if "values" in series else [series["value"]]
    return _series({"metric": series["metric"], "values": points})


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
