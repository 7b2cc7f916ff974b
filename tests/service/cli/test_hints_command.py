"""`kernelcast hints` against the broker inside the process."""

import csv
import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from statistics import median

import pytest
from tests.support.ports import free_ports
from tests.support.service.watermarks import LIMIT_SECONDS, timed_watermarks

from kernelcast.cli.app import run
from kernelcast.cli.hints.reading import follow, open_reader
from kernelcast.runtime.kafka import admin
from kernelcast.runtime.kafka.embedded import EMBEDDED_PARTITIONS, EmbeddedBroker
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.events import Evidence, Hint, HintMode, Outcome, OutcomeState, to_event
from kernelcast.wire.topics import HINTS, ORDERS, OUTCOMES
from kernelcast.wire.tuning.approvals import REQUIRED, RESTART

SOON_NS = time.time_ns() + 14_400_000_000_000
BLOCK = Hint(
    "block-1", "train", "block_size", "128", SOON_NS, "48", "H200", "v1", kernel="stencil",
    expected_ratio=0.8, expected_interval=(0.7, 0.9),
    evidence=(Evidence("block-multiple-of-warp", "block_size", "48", "CUDA guide 5.2"),),
)  # fmt: skip
LOADER = Hint("loader-1", "train", "workers", "4", SOON_NS)
KEPT = Outcome(
    "block-1", "train", "block_size", OutcomeState.KEPT, "0", "", "128", "48", 0.7, (0.6, 0.8), 15,
    "node1", "GPU-1", "kept", 0.75, 0.7, 60, granularity="step",
)  # fmt: skip
OUTCOMES_SENT = (
    Outcome("block-1", "train", "block_size", OutcomeState.RECEIVED, "0", hostname="node1", uuid="GPU-1"),
    Outcome("block-1", "train", "block_size", OutcomeState.APPLIED, "0", hostname="node1", uuid="GPU-1"),
    KEPT,
    Outcome("block-1", "train", "block_size", OutcomeState.REJECTED, "1", "it has 64", hostname="node2", uuid="GPU-2"),
    Outcome("replaced", "serve", "tile", OutcomeState.KEPT, value="32", measured_ratio=0.9, hostname="node3"),
    Outcome("search-1", "hpc", "conv.run", OutcomeState.APPLIED, value="[32]", previous="[32]", hostname="node4"),
    Outcome(
        "search-1",
        "hpc",
        "conv.run",
        OutcomeState.ROLLED_BACK,
        reason="it failed",
        value="[32]",
        previous="[32]",
        hostname="node4",
        decision="failed",
        candidate="[1024]",
    ),
)


def send(servers: str, *data: Hint | Outcome) -> None:
    producer = Producer(KafkaSettings(bootstrap_servers=servers), client_id="test")
    for one in data:
        topic, key = (HINTS, one.key) if isinstance(one, Hint) else (OUTCOMES, one.hint_id)
        producer.send(topic.name, key=key.encode(), value=encode_event(to_event(one, source="/test", time_ns=1)))
    producer.close(5.0)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics=[HINTS.name, OUTCOMES.name, ORDERS.name]) as broker:
        send(broker.bootstrap_servers, BLOCK, LOADER, *OUTCOMES_SENT)
        yield broker.bootstrap_servers


def hints(servers: str, *arguments: str) -> int:
    return run(["hints", *arguments, "--kafka.bootstrap-servers", servers])


def test_list_joins_hints_with_the_newest_state_of_each_process(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hints(servers, "list") == 0
    rows = {line.split("\t")[0]: line.split("\t") for line in capsys.readouterr().out.splitlines()}
    assert set(rows) == {"id", "block-1", "loader-1", "replaced", "search-1"}
    assert rows["block-1"][2:] == [
        "train",
        "block_size",
        "128",
        "0.8 [0.7, 0.9]",
        "1 kept, 1 rejected(it has 64)",
        "0.7 [0.6, 0.8]",
        "block-multiple-of-warp",
    ]
    assert rows["search-1"][2:] == ["hpc", "conv.run", "[1024]", "", "1 failed", "", ""]
    assert rows["replaced"][2:] == ["serve", "tile", "32", "", "1 kept", "0.9", ""]


def test_list_waits_for_no_fetch_where_it_asks_for_offsets(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = timed_watermarks(monkeypatch)
    assert hints(servers, "list") == 0
    assert len(seconds) == 3 * EMBEDDED_PARTITIONS
    assert median(seconds) < LIMIT_SECONDS


def test_json_has_everything(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hints(servers, "list", "--all", "--json") == 0
    found = {one["hint_id"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert found["block-1"]["states"] == {"kept": 1, "rejected(it has 64)": 1}
    assert found["block-1"]["hint"]["evidence"][0]["source"] == "CUDA guide 5.2"
    assert len(found["block-1"]["outcomes"]) == 4
    assert found["replaced"]["hint"] is None


def test_explain_gives_reasons_expectation_and_results_in_sentences(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hints(servers, "explain", "blo") == 0
    said = capsys.readouterr().out
    assert "proposes block_size = 128 in place of 48 for all ranks of train on H200, code version v1." in said
    assert "Reason: rule block-multiple-of-warp found block_size = 48 (source: CUDA guide 5.2)." in said
    assert "Expected: new time of kernel stencil over the old 0.8 [0.7, 0.9]." in said
    assert "train rank 0 on node1: kept, value 128 (before: 48), measured ratio 0.7 [0.6, 0.8] in 15 pairs" in said
    assert "train rank 1 on node2: rejected: it has 64." in said
    assert hints(servers, "explain", "loader-1") == 0
    assert "No program has answered it." in capsys.readouterr().out
    assert hints(servers, "explain", "replaced") == 0
    assert "a newer hint has replaced it" in capsys.readouterr().out
    assert hints(servers, "explain", "search-1") == 0
    said = capsys.readouterr().out
    assert "hpc searches the space conv.run by itself; no hint asked for it." in said
    assert "hpc on node4: failed, value [32], tried [1024]: it failed." in said


def test_an_unknown_hint_is_refused_with_a_remedy(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hints(servers, "explain", "nothing") == 2
    assert "none with the id 'nothing'; `kernelcast hints list --all` shows them" in capsys.readouterr().err


def test_export_has_kept_outcomes_with_their_gains(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hints(servers, "export") == 0
    rows = {one["hint_id"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert set(rows) == {"block-1", "replaced"}
    assert rows["block-1"]["gain_ratio"] == pytest.approx(0.3)
    assert (rows["block-1"]["interval_low"], rows["block-1"]["step_time_ratio"]) == (0.6, 0.75)
    assert hints(servers, "export", "--format", "csv") == 0
    table = {row["hint_id"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert table["block-1"]["rules"] == "block-multiple-of-warp"
    assert table["replaced"]["measured_ratio"] == "0.9"
    assert [table[one]["granularity"] for one in ("block-1", "replaced")] == ["step", ""]


def test_orders_are_written_listed_and_lifted(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hints(servers, "stop", "--by", "ana", "--reason", "driver update") == 0
    assert hints(servers, "stop", "--program", "train", "--node", "node1", "--by", "") == 0
    capsys.readouterr()
    assert hints(servers, "list") == 0
    assert capsys.readouterr().err.splitlines() == [
        "trials of all programs on all nodes are stopped by ana: driver update",
        "trials of program train on node node1 are stopped",
    ]
    assert hints(servers, "resume", "--program", "train") == 0
    assert capsys.readouterr().out.splitlines() == [
        "trials of program train on node node1 are allowed again",
        "still in force: trials of all programs on all nodes are stopped by ana: driver update",
    ]
    assert hints(servers, "resume") == 0
    assert hints(servers, "resume") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no such stop order is in force"


def test_a_hint_that_changes_results_is_proposed_approved_and_rejected(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = Hint("batch-1", "train", "batch", "128", SOON_NS, "64", mode=HintMode.DRY_RUN, approval=REQUIRED)
    send(servers, batch, replace(batch, hint_id="batch-2", tunable="other", expires_at_ns=1))

    def state() -> str:
        assert hints(servers, "list") == 0
        rows = {line.split("\t")[0]: line.split("\t") for line in capsys.readouterr().out.splitlines()}
        return rows["batch-1"][6]

    assert state() == "proposed"
    assert hints(servers, "explain", "batch-1") == 0
    said = capsys.readouterr().out
    assert "no program gets it before a person approves it: `kernelcast hints approve batch-1`" in said
    assert "Programs try the value against the old one" in said
    assert hints(servers, "approve", "batch-1", "--by", "ana") == 0
    assert capsys.readouterr().out == "train batch = 128: approved by ana\n"
    assert state() == "approved by ana"
    send(servers, Outcome("batch-1", "train", "batch", OutcomeState.KEPT, value="128"))
    assert hints(servers, "reject", "batch-1", "--by", "bo", "--reason", "paper due") == 0
    assert "1 processes have kept the value already" in capsys.readouterr().err
    assert state() == "withdrawn by bo: paper due, 1 kept"
    assert hints(servers, "approve", "batch-2") == 2
    assert "hint batch-2 expired at 1970-01-01T00:00:00Z" in capsys.readouterr().err
    assert hints(servers, "approve", "replaced") == 2
    assert "was replaced by a newer one" in capsys.readouterr().err
    assert hints(servers, "reject", "loader-1") == 2
    assert "needs no approval; `kernelcast hints stop --program train` ends its trial" in capsys.readouterr().err


def test_an_order_that_cannot_be_carried_out_is_refused(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert hints(servers, "stop", "--program", "") == 2
    assert "--program is ''; it must be 1 to 128 printable characters" in capsys.readouterr().err
    assert hints(servers, "stop", "--reason", "r" * 501) == 2
    assert "--reason has 501 characters; the limit is 500; shorten it" in capsys.readouterr().err


def test_watch_shows_new_messages_only_one_line_each(servers: str) -> None:
    reader = open_reader(KafkaSettings(bootstrap_servers=servers))
    turns = count()
    lines: list[str] = []

    def ended() -> bool:
        turn = next(turns)
        if turn == 1:
            send(servers, LOADER, KEPT)
            assert hints(servers, "stop", "--program", "train", "--by", "ana") == 0
            assert hints(servers, "approve", "loader-1", "--by", "ana") == 0
        return len(lines) == 4 or turn > 100

    for line in follow(reader, until=ended):
        lines.append(line.partition(" ")[2])  # noqa: PERF401  `ended` looks at them meanwhile
    reader.close()
    assert sorted(lines) == [
        "answer loader-1: train workers = 4 approved by ana",
        "hint loader-1: train workers = 4",
        "order: trials of program train on all nodes are stopped by ana",
        (
            "outcome block-1: train rank 0 on node1 block_size: kept, value 128 (before: 48), "
            "measured ratio 0.7 [0.6, 0.8] in 15 pairs, step time ratio 0.75, device time ratio 0.7"
        ),
    ]


def test_a_missing_topic_is_an_error_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernelcast.cli.hints.reading.Consumer.partitions", lambda _self, _topic: [])
    for command in ("list", "stop"):
        assert hints(servers, command) == 1
        assert "create it with `kernelcast topics apply`" in capsys.readouterr().err


def test_an_unreachable_kafka_is_named_with_the_remedy(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_SECONDS", 2.0)
    (port,) = free_ports(1)
    assert hints(f"127.0.0.1:{port}", "stop") == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"127.0.0.1:{port}" in line


def test_the_search_of_a_space_is_approved_listed_and_rejected(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hints(servers, "reject-search", "hpc", "sizes") == 2
    assert "no approval lets hpc search sizes" in capsys.readouterr().err
    assert hints(servers, "approve-search", "hpc", "sizes", "--most", "0") == 2
    assert "at least one candidate" in capsys.readouterr().err
    assert hints(servers, "approve-search", "hpc", "sizes", "--most", "5", "--code-version", "v1", "--by", "ana") == 0
    said = capsys.readouterr().out
    assert said.startswith("search of sizes by hpc with code version v1: at most 5 candidates until ")
    assert said.endswith(", approved by ana\n")
    assert hints(servers, "list") == 0
    assert said in capsys.readouterr().err
    assert hints(servers, "reject-search", "hpc", "sizes", "--by", "bo", "--reason", "too early") == 0
    assert capsys.readouterr().out == "search of sizes by hpc with code version v1: withdrawn by bo: too early\n"


def test_the_verdict_of_a_roll_out_is_refused_if_it_cannot_be_read_or_is_of_another_hint(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"decision": "kept"}'))
    assert hints(servers, "report", "block-1") == 2
    assert "is not for a restart" in capsys.readouterr().err
    bucket = Hint("bucket-1", "train", "bucket_mb", "25", SOON_NS, "1", approval=REQUIRED, granularity=RESTART)
    send(servers, bucket)
    assert hints(servers, "approve", "bucket-1") == 0
    for text in ("", "[]", '{"decision": "perhaps"}', '{"decision": "kept", "interval": [1]}'):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert hints(servers, "report", "bucket-1") == 2
        assert "pass what `python -m kernelcast.tuning.runs` prints" in capsys.readouterr().err
