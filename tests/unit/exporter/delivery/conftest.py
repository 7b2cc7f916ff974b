from collections.abc import Iterable, Iterator

import pytest

from kernelcast.exporter.delivery.spool.disk import DiskSpool


@pytest.fixture(autouse=True)
def _files_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the spools that a test leaves open, as a process closes its files when it ends."""
    opened: list[DiskSpool] = []
    opening = DiskSpool.open

    def noted(spool: DiskSpool, topics: Iterable[str]) -> DiskSpool:
        opened.append(spool)
        return opening(spool, topics)

    monkeypatch.setattr(DiskSpool, "open", noted)
    yield
    for spool in opened:
        spool.close()
