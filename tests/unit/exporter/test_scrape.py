"""Pages of inference engines that the exporter reads: neutral names, limits, and the GPUs of a server."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from tests.support.serving import PAGES

from kernelcast.columnar import Sample
from kernelcast.exporter.attribution.pod_labels import page_url
from kernelcast.exporter.scrape.fetch import PageTarget
from kernelcast.exporter.scrape.gpus import NodeGpu, gpus_of, listener
from kernelcast.exporter.scrape.page import MAX_LINES, read_page
from kernelcast.exporter.scrape.source import ScrapeSource
from kernelcast.wire.catalogue import inference
from kernelcast.wire.errors import PageError
from kernelcast.wire.histogram import DurationTotals

URL = "http://127.0.0.1:8000/metrics"


def values(server: str) -> dict[str, float | DurationTotals]:
    """Values by name, and kind or state."""
    return {
        " ".join([row.prometheus_name, *(dict(own)[part] for part in ("kind", "state") if part in dict(own))]): value
        for (row, own), value in read_page(PAGES[server]).values.items()
    }


def test_a_vllm_has_every_neutral_name() -> None:
    found = values("vllm")
    first = found.pop("kernelcast_inference_time_to_first_token_seconds")
    assert isinstance(first, DurationTotals)
    assert (first.count, first.sum_ns, sum(first.buckets.values())) == (12, 2_580_201_149, 12)
    assert {name: value for name, value in found.items() if not isinstance(value, DurationTotals)} == {
        "kernelcast_inference_tokens_total prompt": 72.0,
        "kernelcast_inference_tokens_total generation": 1501.0,
        "kernelcast_inference_requests running": 1.0,
        "kernelcast_inference_requests waiting": 0.0,
        "kernelcast_inference_kv_cache_ratio": 0.0004885197850512668,
        "kernelcast_inference_preemptions_total": 0.0,
    }
    assert {row.prometheus_name for row, _ in read_page(PAGES["vllm"]).values} == {
        row.prometheus_name for row in inference.ROWS if row is not inference.GPU_INFO
    }


def test_a_triton_has_counts_and_sums_in_seconds_and_no_time_between_tokens() -> None:
    found = values("triton")
    assert found == {
        "kernelcast_inference_time_to_first_token_seconds": DurationTotals(37, 10_771_000_000),
        "kernelcast_inference_queue_seconds": DurationTotals(161, 11_110_000),
        "kernelcast_inference_request_seconds": DurationTotals(161, 3_220_000_000),
        "kernelcast_inference_requests waiting": 95.0,
    }


def test_series_that_differ_in_other_labels_are_added_up() -> None:
    page = "\n".join(
        f'sglang:generation_tokens_total{{is_streaming="{streams}",model_name="m"}} 4' for streams in ("true", "false")
    )
    ((key, value),) = read_page(page).values.items()
    assert (key[0], value) == (inference.TOKENS, 8.0)


def test_a_quantile_of_an_engines_histogram_lies_in_the_bucket_of_its_bound() -> None:
    registry = CollectorRegistry()
    times = Histogram("vllm:request_queue_time_seconds", "", ["model_name"], registry=registry, buckets=(0.5, 2.0))
    for seconds in (0.1, 0.4, 1.0, 1.5, 9.0):
        times.labels("m").observe(seconds)
    (found,) = read_page(generate_latest(registry).decode()).values.values()
    assert isinstance(found, DurationTotals)
    assert found == DurationTotals(5, 12_000_000_000, 0, 0, {-9: 2, 7: 2, 8: 1})  # up to 0.5 s, 2 s, beyond


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("process_open_fds 3\n", "no metrics of"),
        ("<html>Sign in</html>", "no metrics of"),
        ('vllm:num_requests_running{model_name="m} 3', "expected"),
        ("vllm:num_requests_running 3\n" * (MAX_LINES + 1), "the limit is"),
    ],
)
def test_a_page_that_is_no_engines_is_refused(page: str, why: str) -> None:
    with pytest.raises(PageError, match=why):
        read_page(page)


def test_values_that_cannot_be_are_left_out() -> None:
    page = "vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc 0.5\n"
    assert [row for row, _ in read_page(page).values] == [inference.KV_CACHE]


class Node:
    """The source over pages that a test sets; None does not answer."""

    def __init__(self, *targets: PageTarget, gpus: tuple[NodeGpu, ...] = ()) -> None:
        self.pages: dict[str, str | None] = {target.url: PAGES["vllm"] for target in targets}
        self.errors = 0
        self.source = ScrapeSource(
            lambda: targets,
            lambda: gpus,
            hostname="node1",
            interval_seconds=10,
            on_error=self.failed,
            get=self.get,
        )

    def failed(self) -> None:
        self.errors += 1

    def get(self, url: str) -> str:
        page = self.pages[url]
        if page is None:
            raise PageError(f"{url} does not answer")
        return page

    def samples(self) -> list[Sample]:
        self.source.refresh()
        return list(self.source.poll(1).samples)


def test_a_page_that_fails_once_keeps_its_values_and_is_counted() -> None:
    node = Node(PageTarget(URL))
    before = node.samples()
    node.pages[URL] = None
    assert node.samples() == before
    assert node.errors == 1
    assert {dict(sample.attributes)["address"] for sample in before} == {"127.0.0.1:8000"}


def test_every_page_of_a_server_is_read_and_has_its_own_series() -> None:
    node = Node(PageTarget(URL), PageTarget("http://127.0.0.1:8000/second/metrics"))
    samples = node.samples()
    assert {dict(sample.attributes)["address"] for sample in samples} == {"127.0.0.1:8000", "127.0.0.1:8000/second"}
    assert len({(sample.metric.otlp_name, sample.attributes) for sample in samples}) == len(samples)


def test_a_server_in_a_pod_is_joined_to_the_gpus_of_its_pod() -> None:
    mine, other = {"pod": "llm-0", "namespace": "serve"}, {"pod": "train-0", "namespace": "serve"}
    gpus = (NodeGpu("GPU-1", "0", users=(other, mine)), NodeGpu("GPU-2", "1", users=(other,)))
    node = Node(PageTarget("http://10.0.0.7:8000/metrics", (("namespace", "serve"), ("pod", "llm-0"))), gpus=gpus)
    infos = [dict(sample.attributes) for sample in node.samples() if sample.metric is inference.GPU_INFO]
    assert [(info["UUID"], info["gpu"], info["pod"], info["server"]) for info in infos] == [
        ("GPU-1", "0", "llm-0", "vllm")
    ]


def proc(tmp_path: Path) -> Path:
    """A server (pid 40) that listens on port 8000 and left the GPU to its child 41; 50 is another program."""
    (tmp_path / "net").mkdir()
    line = "   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1\n"
    (tmp_path / "net/tcp").write_text("  sl  local_address rem_address   st\n" + line)
    for pid, parent in ((40, 1), (41, 40), (50, 1)):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1 0\n")
    (tmp_path / "40/fd/3").symlink_to("socket:[777]")
    (tmp_path / "50/fd/3").symlink_to("socket:[778]")
    return tmp_path


def test_a_server_is_joined_to_the_gpu_of_its_child(tmp_path: Path) -> None:
    place = proc(tmp_path)
    gpus = (NodeGpu("GPU-1", "0", pids=(50,)), NodeGpu("GPU-2", "1", pids=(41, 50)))
    assert gpus_of(gpus, listener(8000, place), {}, place) == gpus[1:]
    assert gpus_of(gpus, listener(8001, place), {}, place) == ()


def test_a_pods_server_is_not_joined_to_the_gpu_of_a_process_of_the_node_with_its_port(tmp_path: Path) -> None:
    place, pod = proc(tmp_path), {"pod": "llm-0", "namespace": "serve"}
    gpus = (NodeGpu("GPU-1", "0", users=(pod,)), NodeGpu("GPU-2", "1", pids=(41,)))
    assert gpus_of(gpus, listener(8000, place), pod, place) == gpus[:1]


@pytest.mark.parametrize(
    ("asked", "address", "url"),
    [
        ("8000", "10.0.0.7", "http://10.0.0.7:8000/metrics"),
        ("8000/prom/metrics", "fd00::7", "http://[fd00::7]:8000/prom/metrics"),
        ("8000@evil.example/", "10.0.0.7", ""),
        ("80000", "10.0.0.7", ""),
        ("8000/a?b", "10.0.0.7", ""),
        ("8000", "evil.example", ""),
        ("", "10.0.0.7", ""),
    ],
)
def test_a_pods_annotation_names_port_and_path_and_nothing_else(asked: str, address: str, url: str) -> None:
    assert page_url(asked, address) == url
