"""Several bridges of one group over one Kafka, and series that move between its partitions."""

from dataclasses import dataclass, field

from tests.support.bridge.fleet import LAUNCHES, Site, launches
from tests.support.bridge.list_kafka import ListKafka, ManualClock, SkewedClock

from kernelcast.bridge.intake.parts import IntakePolicy


@dataclass
class Group:
    """Bridges that share logs, commits and time; `falls` compares what any of them exposes.

    Attributes:
        counts: The true value of each series that is written as a cumulative one, from 1 up.
        falls: Each value that was exposed below one exposed before: series, before, after.
    """

    ttl_seconds: float = 300.0
    grouped: bool = True
    clock: ManualClock = field(default_factory=ManualClock)
    kafka: ListKafka = field(default_factory=ListKafka)
    bridges: list[Site] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    falls: list[tuple[str, float, float]] = field(default_factory=list)
    _highest: dict[str, float] = field(default_factory=dict)

    def bridge(self, *partitions: int, at_once: int = 1000, behind_seconds: int = 0) -> Site:
        """Start a bridge that is given some partitions; its machine's time of day may be behind."""
        site = Site(
            kafka=ListKafka(
                self.kafka.logs,
                commits=self.kafka.commits,
                at_once=at_once,
                ids=self.kafka.ids,
                notes=self.kafka.notes,
            ),
            clock=SkewedClock(self.clock, -behind_seconds * 1_000_000_000),
            policy=IntakePolicy(self.ttl_seconds, grouped=self.grouped),
        )
        self.bridges.append(site)
        self.give(site, *partitions)
        return site

    def give(self, site: Site, *partitions: int) -> None:
        """Assign partitions to a bridge, and check its page."""
        site.kafka.assign(site.intake, *(("kernels", number) for number in partitions))
        self.look()

    def take(self, site: Site, *partitions: int) -> None:
        """Revoke partitions of a bridge."""
        site.kafka.revoke(site.intake, *(("kernels", number) for number in partitions))
        self.look()

    def kill(self, site: Site) -> None:
        """End a bridge without a word."""
        self.bridges.remove(site)

    def recreate(self, topic_id: str = "") -> None:
        """Delete the topic and create it again; bridges that read it go on at their offsets, as in a log that grows."""
        for key in self.kafka.logs:
            self.kafka.logs[key] = []
        self.kafka.commits.clear()
        if topic_id:
            self.kafka.ids["kernels"] = topic_id

    def write(self, partition: int, *names: str) -> None:
        """Raise series by one and write them to a partition."""
        for name in names:
            self.counts[name] = self.counts.get(name, 0) + 1
            sample = launches(self.counts[name], time_ns=self.clock.now_ns(), name=name)
            writer = self.bridges[0] if self.bridges else Site(kafka=self.kafka, clock=self.clock)
            writer.export(partition, sample, keyed=name.encode())

    def live(self, seconds: int, where: dict[str, int], *, every: int = 1) -> None:
        """Let time pass: each second every series is written to its partition, and every bridge takes a step.

        Args:
            seconds: How long.
            where: The partition of each series.
            every: Seconds between two steps of the bridges; the last second has one in any case. More than 6 s would
                count as a pause of the process.
        """
        for second in range(seconds):
            self.clock.seconds += 1
            for name, partition in where.items():
                self.write(partition, name)
            self.write_more(where)
            if second % every == 0 or second == seconds - 1:
                self.step()

    def live_long(self, seconds: int, where: dict[str, int], *, after: int = 0) -> None:
        """Let time pass, with fewer steps in the middle, where nothing happens.

        Args:
            seconds: How long.
            where: The partition of each series.
            after: Seconds at the beginning with a step in each, as in the last 30 s. A series that moves is held for
                79 s, so 90 s after a move nothing happens any more.
        """
        first, last = min(after, seconds), min(30, max(seconds - after, 0))
        self.live(first, where)
        self.live(seconds - first - last, where, every=5)
        self.live(last, where)

    def write_more(self, where: dict[str, int]) -> None:
        """Write what a kind of group has besides counters, each second."""

    def step(self) -> None:
        """Have every bridge take a step, and check its page."""
        for site in self.bridges:
            site.intake.step()
        self.look()

    def read_all(self) -> None:
        """Have every bridge read what there is, and look after each step."""
        while sum(site.intake.step() for site in self.bridges):
            self.look()
        self.look()

    def shown(self, site: Site, metric: str = LAUNCHES) -> dict[str, float]:
        """The exposed values of a bridge, by series."""
        return {dict(labels)["kernel"]: value for (name, labels), value in site.exposed().items() if name == metric}

    def look(self) -> None:
        """Compare the exposed values with the previous ones."""
        for site in self.bridges:
            for name, value in self.shown(site).items():
                highest = self._highest.get(name, 0.0)
                if value < highest:
                    self.falls.append((name, highest, value))
                self._highest[name] = max(value, highest)
