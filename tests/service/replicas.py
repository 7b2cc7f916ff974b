"""Several bridges at once, watched without a pause: what each exposes at every moment."""

import itertools
import re
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from tests.service.nursery import ForkedServer
from tests.service.servers import (
    START_SECONDS,
    PrometheusServer,
    ServerProcess,
    answers,
    free_ports,
    get,
    note_logs,
    stopping,
)
from tests.service.writers import LAUNCHES
from tests.support.waiting import LONGEST_SECONDS

LINE = re.compile(rf"^{LAUNCHES}{{.*kernel=\"([^\"]+)\".*}} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Look:
    """One answer of a replica: seconds before and after the answer, if there was one, and values by kernel."""

    began: float
    ended: float
    answered: bool
    values: Mapping[str, float]


class Watch:
    """Asks every replica for its page again and again, each in a thread of its own: a slow one delays no other."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._stopping = threading.Event()
        self.looks: dict[int, list[Look]] = {index: [] for index in range(len(urls))}
        self._threads = [
            threading.Thread(target=self._watch, args=(url, self.looks[index]), name=f"watch-{index}", daemon=True)
            for index, url in enumerate(urls)
        ]

    def start(self) -> None:
        """Look from now on."""
        for thread in self._threads:
            thread.start()

    def _watch(self, url: str, looks: list[Look]) -> None:
        while not self._stopping.wait(0.15):
            began = time.monotonic()
            try:
                body = get(f"{url}/metrics", 5)
            except OSError:
                body = ""
            values = {name: float(value) for name, value in LINE.findall(body)}
            looks.append(Look(began, time.monotonic(), bool(body), values))

    def stop(self) -> None:
        """Stop looking."""
        self._stopping.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(LONGEST_SECONDS)

    def doubles(self) -> list[tuple[str, int, int, float]]:
        """Series that one replica exposed while another did: before that, after that, and at every look between.

        Two looks are never at the same moment. A replica that loses a series and has it again is seen without it in
        between, however slow the other's answer was.
        """
        found = []
        for one, other in itertools.permutations(self.looks, 2):
            ends = [look.ended for look in self.looks[other]]
            begins = [look.began for look in self.looks[other]]
            for look in self.looks[one]:
                before, after = bisect_right(ends, look.began) - 1, bisect_left(begins, look.ended)
                if look.values and before >= 0 and after < len(begins):
                    around = self.looks[other][before : after + 1]
                    both = set(look.values).intersection(*(seen.values for seen in around))
                    found += [(name, one, other, look.began) for name in both]
        return found

    def longest_gap(self, name: str) -> float:
        """The longest time, in seconds, for which no replica showed a series that one of them had shown.

        From the last look that saw it to the next one; a replica that merely was not looked at has hidden nothing.
        """
        looks = sorted(
            ((look, index) for index, looks in self.looks.items() for look in looks), key=lambda item: item[0].began
        )
        longest, owner, seen, missed = 0.0, -1, 0.0, False
        for look, index in looks:
            if name in look.values:
                if owner >= 0 and (missed or index != owner):
                    longest = max(longest, look.began - seen)
                owner, seen, missed = index, look.ended, False
            elif index == owner and look.answered:
                missed = True
        return longest

    def falls(self) -> list[tuple[str, float, float]]:
        """Every value of a series that was lower than one seen before, on whichever replica."""
        found = []
        highest: dict[str, tuple[float, float]] = {}
        for look in sorted((look for looks in self.looks.values() for look in looks), key=lambda look: look.began):
            for name, value in look.values.items():
                known, ended = highest.get(name, (0.0, 0.0))
                if value < known and look.began >= ended:
                    found.append((name, known, value))
                highest[name] = (value, look.ended)
        return found


class Replicas:
    """Bridges with one configuration; `with Replicas(…) as replicas` stops whatever was started."""

    def __init__(self, directory: Path, bootstrap_servers: str, count: int, **settings: Any) -> None:
        self.count = count
        self._directory = directory
        self._bootstrap_servers, self._settings = bootstrap_servers, settings
        self._ports = free_ports(count)
        self.servers = [self._server(index) for index in range(count)]
        self._others: list[ServerProcess] = []
        self.watch = Watch([self.url(index) for index in range(count)])

    def _server(self, index: int) -> ServerProcess:
        settings = {
            "web": {"listen_address": f"127.0.0.1:{self._ports[index]}"},
            **{
                name: value.format(index=index) if isinstance(value, str) else value
                for name, value in self._settings.items()
            },
        }
        configuration = self._directory / f"bridge-{index}.yaml"
        content = {"kafka": {"bootstrap_servers": self._bootstrap_servers}, "bridge": settings}
        configuration.write_text(yaml.safe_dump(content))
        return ForkedServer(f"bridge-{index}", ["bridge", "--config", str(configuration)], self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.watch.stop()
        if error is not None:
            note_logs(error, *self.servers)
        with stopping(*self.servers, *self._others):
            pass

    def url(self, index: int) -> str:
        """The address of a replica."""
        return f"http://127.0.0.1:{self._ports[index]}"

    def ready(self, index: int) -> bool:
        """Whether a replica is."""
        return answers(f"{self.url(index)}/-/ready")

    def start(self, *indexes: int) -> None:
        """Start some, together, and wait until they are ready."""
        for index in indexes:
            self.servers[index].start()
        for index in indexes:
            self.servers[index]._wait(lambda index=index: self.ready(index), START_SECONDS)  # type: ignore[misc]

    def prometheus(self) -> PrometheusServer:
        """A Prometheus that scrapes all of them every second."""
        targets = [f"127.0.0.1:{port}" for port in self._ports]
        configuration = self._directory / "prometheus.yml"
        job = {"job_name": "bridge", "honor_labels": True, "static_configs": [{"targets": targets}]}
        content = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [job]}
        configuration.write_text(yaml.safe_dump(content))
        server = PrometheusServer(self._directory, configuration)
        self._others.append(server)
        return server.run()

    def own(self, index: int, name: str) -> float:
        """A replica's metric about itself, summed over its labels."""
        body = get(f"{self.url(index)}/metrics")
        return sum(float(line.rpartition(" ")[2]) for line in body.splitlines() if re.match(rf"{name}(?:{{| )", line))
