"""Producers and the series about them."""

from typing import Any

from tests.support.bridge.fleet import Known, Point, come_from, decoded, page, samples

from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.producers import ProducerRules
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import Attributes, SeriesIdentity

TTL_MS = 300_000


UP = "kernelcast_producer_up"


INFO = "target_info"


def resource(instance: str = "a", **attributes: str) -> Attributes:
    own = {"service.instance.id": instance, "service.name": "api"}
    return tuple(sorted((own | {key.replace("_", "."): value for key, value in attributes.items()}).items()))


class Fleet:
    """A store, and an input with registered series."""

    def __init__(self, store: SeriesStore | None = None, partitions: int = 1, **options: Any) -> None:
        self.store = store or SeriesStore(SeriesLimits(), producers=ProducerRules(ttl_ms=TTL_MS), **options)
        self.identities: list[SeriesIdentity] = []
        self.source = Known(self.identities.__getitem__)
        self.offset = 0
        for partition in range(partitions):
            self.store.expose(partition, exposed=True)

    def send(self, *identities: SeriesIdentity, append_ms: int, partition: int = 0, key_hash: int = 1) -> Any:
        self.identities += [one for one in identities if one not in self.identities]
        self.offset += 1
        points = [Point(self.identities.index(one), 1.0, append_ms * 1_000_000) for one in identities]
        return self.store.apply(decoded(points), come_from(partition, self.offset, append_ms, key_hash), self.source)

    def look(self, *now_ms: int) -> None:
        self.store.judge_producers(dict(enumerate(now_ms)))

    def shown(self, name: str) -> dict[str, float]:
        """Values by instance."""
        found = samples(page(self.store)).items()
        return {dict(labels).get("instance", ""): value for (sample, labels), value in found if sample == name}

    def info(self) -> list[dict[str, str]]:
        return [dict(labels) for (sample, labels) in samples(page(self.store)) if sample == INFO]
