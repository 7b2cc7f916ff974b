import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.delivery.spool.disk import DiskSpool
from kernelcast.exporter.delivery.spool.record import HEAD_BYTES, SpooledMessage, pack, unpack
from kernelcast.exporter.delivery.spool.segment import MAGIC, Segment
from kernelcast.wire.errors import ConfigurationError

TOPIC = "kernelcast.device"
OTHER = "kernelcast.kernels"
SECOND_NS = 1_000_000_000
RECORDS = st.builds(
    SpooledMessage,
    st.integers(0, 2**64 - 1),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=200),
)


class Spool:
    """A spool in a directory, with its losses counted."""

    def __init__(self, directory: Path, *, max_bytes: int = 2**30, max_age_seconds: float = 1e9) -> None:
        self.directory, self.max_bytes, self.max_age_seconds = directory, max_bytes, max_age_seconds
        self.lost: Counter[str] = Counter()
        self.disk = self._open()

    def _open(self) -> DiskSpool:
        disk = DiskSpool(
            self.directory,
            max_bytes=self.max_bytes,
            max_age_seconds=self.max_age_seconds,
            on_drop=lambda reason, count: self.lost.update({reason: count}),
        )
        return disk.open([TOPIC, OTHER])

    def crash(self) -> None:
        """End as `kill -9` does: nothing more is written."""
        for topic in self.disk.topics:
            self.disk.lane(topic).close()
        assert self.disk._lock is not None
        os.close(self.disk._lock)
        self.disk._lock = None
        self.disk = self._open()

    def append(self, *values: bytes, topic: str = TOPIC, time_ns: int = SECOND_NS) -> list[int | None]:
        return [self.disk.append(topic, SpooledMessage(time_ns, b"node", value)) for value in values]

    def read(self, topic: str = TOPIC) -> list[bytes | None]:
        return [record.value for _, record in self.numbered(topic)]

    def numbered(self, topic: str = TOPIC) -> Iterator[tuple[int, SpooledMessage]]:
        while (found := self.disk.read(topic)) is not None:
            yield found

    def files(self, topic: str = TOPIC) -> list[Path]:
        return sorted((self.directory / topic).glob("*.segment"))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool")
    yield made
    made.disk.close()


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: SpooledMessage) -> None:
    assert unpack(pack(record)) == record


@given(RECORDS, st.data())
def test_no_changed_or_shortened_record_is_taken_for_one(record: SpooledMessage, data: st.DataObject) -> None:
    whole = pack(record)
    assert unpack(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytes((*whole[:at], whole[at] ^ data.draw(st.integers(1, 255)), *whole[at + 1 :]))
    assert unpack(changed) is None


def test_messages_keep_their_order_in_each_topic(spool: Spool) -> None:
    spool.append(b"1", b"2")
    spool.append(b"a", topic=OTHER)
    spool.append(b"3")
    assert spool.read() == [b"1", b"2", b"3"]
    assert spool.read(OTHER) == [b"a"]


def test_confirmed_messages_are_removed_and_others_are_read_again_after_a_rewind(spool: Spool) -> None:
    first, second, _third = spool.append(b"1", b"2", b"3")
    assert spool.read() == [b"1", b"2", b"3"]
    lane = spool.disk.lane(TOPIC)
    assert second is not None
    assert lane.settle(second)
    lane.rewind()
    assert (spool.read(), spool.disk.messages) == ([b"1", b"3"], 2)
    assert first is not None
    assert lane.settle(first)
    assert not lane.settle(first)
    lane.rewind()
    assert spool.read() == [b"3"]


def test_the_disk_is_free_once_all_is_confirmed(spool: Spool) -> None:
    for number in spool.append(b"1", b"2"):
        assert number is not None
        spool.disk.lane(TOPIC).settle(number)
    assert (spool.files(), spool.disk.size_bytes, spool.disk.messages) == ([], 0, 0)
    spool.append(b"3")
    assert spool.read() == [b"3"]


def test_a_killed_process_loses_nothing_and_forgets_no_confirmation_that_was_noted(spool: Spool) -> None:
    numbers = spool.append(b"1", b"2", b"3")
    assert numbers[0] is not None
    spool.disk.lane(TOPIC).settle(numbers[0])
    spool.disk.sync(spool.disk.unsynced())
    spool.append(b"4")
    spool.crash()
    assert spool.disk.messages == 3
    assert spool.read() == [b"2", b"3", b"4"]
    assert spool.append(b"5") == [4]
    assert spool.read() == [b"5"]
    assert not spool.lost


@given(st.data())
def test_a_torn_end_is_cut_off_wherever_it_is_torn(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"))
    values = [b"x" * n for n in data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=5))]
    spool.append(*values)
    (path,) = spool.files()
    length = data.draw(st.integers(0, path.stat().st_size))
    ends = [
        len(MAGIC) + sum(len(pack(SpooledMessage(SECOND_NS, b"node", v))) for v in values[:n])
        for n in range(len(values) + 1)
    ]
    whole = sum(end <= length for end in ends[1:])
    os.truncate(path, length)
    spool.crash()
    assert spool.read() == values[:whole]
    assert bool(spool.lost["torn"]) == (length not in ends)
    spool.append(b"after")
    assert spool.read() == [b"after"]
    spool.crash()
    assert spool.read() == [*values[:whole], b"after"]
    spool.disk.close()


def test_one_flipped_byte_costs_one_message_and_is_counted_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=2**20)
    big = bytes(20_000)
    spool.append(big, b"damaged", b"behind it", big, b"next segment")
    first = spool.files()[0]
    content = bytearray(first.read_bytes())
    content[content.index(b"damaged")] ^= 1
    first.write_bytes(content)
    spool.crash()
    assert spool.read() == [big, b"behind it", big, b"next segment"]
    assert spool.lost == {"torn": 1}
    spool.crash()
    assert spool.read() == [big, b"behind it", big, b"next segment"]
    assert spool.lost == {"torn": 1}


@pytest.mark.parametrize("at", [0, 16, 20], ids=["length of the record", "length of the key", "length of the value"])
def test_a_record_with_one_damaged_length_counts_as_one(spool: Spool, at: int) -> None:
    spool.append(b"000" + 9 * b"x")
    (path,) = spool.files()
    content = bytearray(path.read_bytes())
    content[len(MAGIC) + at] ^= 48
    path.write_bytes(content)
    spool.crash()
    assert spool.read() == []
    assert spool.lost == {"torn": 1}


@given(st.data())
def test_wherever_a_byte_is_flipped_at_most_one_message_is_lost(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"))
    values: list[bytes | None] = [
        b"%03d" % n + b"x" * size
        for n, size in enumerate(data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=9)))
    ]
    numbers = spool.append(*(value for value in values if value is not None))
    confirmed = data.draw(st.integers(0, len(values) - 1))
    for number in numbers[:confirmed]:
        assert number is not None
        spool.disk.lane(TOPIC).settle(number)
    spool.disk.sync(spool.disk.unsynced())
    (path,) = spool.files()
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    while_reading = data.draw(st.booleans())
    if not while_reading:
        spool.crash()
    read = spool.read()
    wanted = values[confirmed:]
    missing = [value for value in wanted if value not in read]
    assert len(missing) <= 1
    assert [value for value in read if value in wanted] == [value for value in wanted if value in read], "in order"
    assert spool.lost.total() <= 1
    assert len(missing) <= spool.lost.total()
    spool.append(b"after")
    spool.disk.lane(TOPIC).rewind()
    assert spool.read()[-1] == b"after"
    spool.disk.close()


def test_two_damaged_places_cost_only_the_messages_in_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    values = [b"message %02d" % n for n in range(20)]
    spool.append(*values)
    (path,) = spool.files()
    content = bytearray(path.read_bytes())
    size = (len(content) - len(MAGIC)) // 20
    content[len(MAGIC) + 3 * size : len(MAGIC) + 5 * size] = bytes(2 * size)  # as a lost sector is read
    content[len(MAGIC) + 11 * size] ^= 0x10  # a length
    path.write_bytes(content)
    spool.crash()
    assert spool.read() == [*values[:3], *values[5:11], *values[12:]]
    assert spool.lost["torn"] >= 2


def test_damage_met_while_reading_costs_one_message_and_what_follows_is_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(b"one", b"damaged", b"two", b"three")
    (path,) = spool.files()
    at = path.read_bytes().index(b"damaged")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"D")
    assert spool.read() == [b"one", b"two", b"three"]
    assert spool.lost == {"disk": 1}
    spool.append(b"after")
    assert spool.read() == [b"after"]
    assert spool.disk.messages == 4
    spool.disk.lane(TOPIC).rewind()
    assert spool.read() == [b"one", b"two", b"three", b"after"]
    assert spool.lost == {"disk": 1}


def test_over_its_bound_the_oldest_go_and_are_counted_exactly(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=2**20)
    values = [n.to_bytes(4, "big") + bytes(10_000) for n in range(300)]
    for index, value in enumerate(values):
        spool.append(value, topic=OTHER if index % 3 == 0 else TOPIC, time_ns=index + 1)
        assert spool.disk.size_bytes <= 2**20
    kept = sorted(value for topic in (TOPIC, OTHER) for value in spool.read(topic) if value is not None)
    assert len(kept) + spool.lost["bound"] == len(values)
    assert spool.disk.messages == len(kept)
    missing = [n for n, value in enumerate(values) if value not in kept]
    assert max(missing) < min(n for n, value in enumerate(values) if value in kept) + 12, "the oldest of both topics"


def test_messages_in_delivery_are_no_loss_when_they_must_make_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=2**20)
    spool.append(*[bytes(10_000)] * 4)
    handed = [number for number, _ in spool.numbered()]
    spool.append(*[bytes(10_000)] * 120)
    lane = spool.disk.lane(TOPIC)
    assert not any(lane.holds(number) for number in handed)
    assert spool.lost["bound"] + len(spool.read()) == 120
    assert not lane.settle(handed[0])


def test_messages_that_are_too_old_are_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_age_seconds=60)
    spool.append(b"1", b"2", time_ns=SECOND_NS)
    spool.disk.expire(60 * SECOND_NS)
    assert not spool.lost
    spool.disk.expire(62 * SECOND_NS)
    assert (spool.lost, spool.read()) == ({"age": 2}, [])


def test_a_full_disk_takes_new_messages_in_the_place_of_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, max_bytes=2**20)
    spool.append(*[bytes(10_000)] * 12)
    room = sum(path.stat().st_size for path in spool.files()) + 5_000
    write = os.pwrite

    def full(file: int, data: bytes, offset: int) -> int:
        used = sum(path.stat().st_size for path in spool.files())
        if used + len(data) <= room:
            return write(file, data, offset)
        if used < room:
            return write(file, data[: room - used], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    for n in range(6):
        assert spool.append(bytes(10_000 - 1) + bytes((n,))) != [None]
    assert spool.lost["disk"] > 0
    read = spool.read()
    assert [value[-1] for value in read[-6:] if value is not None] == list(range(6))
    assert len(read) + spool.lost["disk"] == 18


def test_a_disk_that_takes_nothing_says_so(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int, _data: bytes, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spool.append(b"1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert spool.append(b"2") == [None]
    assert spool.lost == {"disk": 1}, "existing messages were dropped in vain"
    spool.append(b"3")
    assert spool.read() == [b"3"]


def read_only(patch: pytest.MonkeyPatch) -> None:
    """Let every change of a file fail, as after the kernel has remounted a damaged file system."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("pwrite", "truncate", "fdatasync"):
        patch.setattr(os, name, refuse)
    patch.setattr(Path, "unlink", refuse)


def test_a_disk_that_became_read_only_costs_new_messages_only(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.append(b"1", b"2")
    with monkeypatch.context() as patch:
        read_only(patch)
        assert spool.append(b"3") == [None]
        assert spool.read() == [b"1", b"2"]
    assert not spool.lost


def test_messages_are_confirmed_and_dropped_also_where_their_file_cannot_be_deleted(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = spool.append(b"1", b"2")
    spool.append(b"3", topic=OTHER)
    assert spool.read() == [b"1", b"2"]
    with monkeypatch.context() as patch:
        read_only(patch)
        for number in numbers:
            assert number is not None
            assert spool.disk.lane(TOPIC).settle(number)
        spool.disk.expire(2 * 10**18)
    assert (spool.disk.messages, spool.lost) == (0, {"age": 1})
    spool.append(b"4")
    spool.disk.sync([])
    spool.crash()
    assert spool.read() == [b"4"]
    assert len(spool.files()) == 1, "the old file was left for ever"


def test_a_confirmation_during_the_write_of_the_head_is_written_by_the_next(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sync` needs no lock, so that messages are confirmed meanwhile."""
    spool.append(b"1", b"2", b"3")
    spool.read()
    lane = spool.disk.lane(TOPIC)
    lane.settle(0)
    write = os.pwrite

    def slow(file: int, data: bytes, offset: int) -> int:
        lane.settle(1)
        return write(file, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", slow)
        spool.disk.sync([])
    spool.disk.sync([])
    spool.crash()
    assert spool.read() == [b"3"]


def test_two_exporters_cannot_share_a_spool(spool: Spool) -> None:
    with pytest.raises(ConfigurationError, match="used by another exporter"):
        DiskSpool(spool.directory, max_bytes=2**20, max_age_seconds=60).open([TOPIC])


def test_a_directory_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"exporter\.spool\.directory .* cannot be used"):
        DiskSpool(tmp_path / "file" / "spool", max_bytes=2**20, max_age_seconds=60).open([TOPIC])


def test_only_the_exporters_user_can_read_the_spool(spool: Spool) -> None:
    spool.append(b"1")
    assert spool.directory.stat().st_mode & 0o077 == 0
    assert spool.files()[0].stat().st_mode & 0o077 == 0


def test_a_file_that_is_no_segment_is_replaced(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(b"1")
    spool.files()[0].write_bytes(b"something else entirely")
    spool.crash()
    assert (spool.read(), spool.lost) == ([], {"torn": 1})


def test_foreign_files_and_folders_are_left_alone(spool: Spool) -> None:
    spool.append(b"1")
    (spool.directory / TOPIC / "copy of 0.segment").write_bytes(b"mine")
    (spool.directory / "lost+found").mkdir()
    spool.crash()
    assert (spool.disk.topics, spool.read(), spool.lost) == ((TOPIC, OTHER), [b"1"], {})
    assert (spool.directory / TOPIC / "copy of 0.segment").read_bytes() == b"mine"


def test_messages_of_a_topic_that_is_no_longer_written_are_still_sent(spool: Spool) -> None:
    (spool.directory / TOPIC).rename(spool.directory / "kernelcast.former")
    (spool.directory / "kernelcast.former" / f"{0:020d}.segment").write_bytes(
        MAGIC + pack(SpooledMessage(1, b"k", b"v"))
    )
    spool.crash()
    assert spool.read("kernelcast.former") == [b"v"]


def test_a_damaged_record_of_confirmations_sends_more_twice_never_less(spool: Spool) -> None:
    numbers = spool.append(b"1", b"2")
    assert numbers[0] is not None
    spool.disk.lane(TOPIC).settle(numbers[0])
    spool.disk.sync(spool.disk.unsynced())
    head = spool.directory / TOPIC / "head"
    head.write_bytes(b"\xff" + head.read_bytes()[1:])
    spool.crash()
    assert spool.read() == [b"1", b"2"]


def test_a_segment_counts_what_its_lengths_tell_it_has_lost(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path, 7)
    for value in (b"a", b"b", b"c"):
        segment.append(SpooledMessage(1, None, value))
    segment.close()
    content = bytearray(segment.path.read_bytes())
    for number in range(3):
        content[len(MAGIC) + HEAD_BYTES + number * segment.size_bytes // 3] ^= 1
    segment.path.write_bytes(content)
    loaded = Segment.load(segment.path)
    assert (loaded.first, loaded.count, loaded.cut, loaded.end) == (7, 0, 3, 7)
    loaded.close()
