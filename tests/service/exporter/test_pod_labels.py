"""Labels of pods and images of containers from an API server, over HTTP."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.exporter.api_server_double import FakeApiServer
from tests.support.exporter.cgroup_node import ID, UID, Node
from tests.support.exporter.gpus import GPU_0

from kernelcast.exporter.attribution import Attribution, AttributionSettings, attribution
from kernelcast.exporter.attribution.api_server import MAX_PAGES, ApiServer, ApiServerError
from kernelcast.exporter.attribution.attribution import MAX_MISSED
from kernelcast.exporter.attribution.pod_labels import MAX_LABELS, PodLabelReader, PodLabels, label_name
from kernelcast.exporter.attribution.pod_resources import Container
from kernelcast.exporter.settings import ExporterSettings


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    made = FakeApiServer()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("the-token\n")
    return tmp_path


def reader(api: FakeApiServer, account: Path, *patterns: str) -> PodLabelReader:
    return PodLabelReader(ApiServer("node-1", api.url, account), patterns or ("^app$", r"^example\.com/team$"))


def test_only_allowed_labels_of_this_nodes_pods_are_taken_from_every_page(api: FakeApiServer, account: Path) -> None:
    api.add("train-0", app="train", **{"example.com/team": "vision", "pod-template-hash": "77d9"})
    api.add("train-1", app="train")
    api.add("train-2", other="x")
    api.add("elsewhere", node="node-2", app="no")
    labels = reader(api, account).read()
    assert labels.of(Container("team", "train-0", "c")) == {"app": "train", "example_com_team": "vision"}
    assert labels.of(Container("team", "train-1", "c")) == {"app": "train"}
    assert labels.of(Container("team", "train-2", "c")) == {}
    assert labels.of(Container("team", "elsewhere", "c")) is None
    assert len(api.asked) == 2


DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "image_id", "shown"),
    [
        ("registry/train:1.4", f"registry/train@{DIGEST}", "registry/train:1.4@0123456789ab"),
        ("registry/train:1.4", f"docker-pullable://registry/train@{DIGEST}", "registry/train:1.4@0123456789ab"),
        ("registry/train:1.4", DIGEST, "registry/train:1.4@0123456789ab"),
        (f"registry/train@{DIGEST}", f"registry/train@{DIGEST}", "registry/train@0123456789ab"),
        (DIGEST, DIGEST, "0123456789ab"),
        ("registry/train:1.4", "an-id-of-another-form", "registry/train:1.4"),
        ("a" * 300 + ":9", f"a@{DIGEST}", "a" * 185 + ":9@0123456789ab"),
        ("train:\n1", f"a@{DIGEST}", "train:1@0123456789ab"),
    ],
)
def test_an_image_is_its_reference_with_the_beginning_of_its_digest(
    api: FakeApiServer, account: Path, image: str, image_id: str, shown: str
) -> None:
    api.run("train-0", "torch", image, image_id)
    found = PodLabelReader(ApiServer("node-1", api.url, account), (), images=True).read()
    assert found.images == {Container("team", "train-0", "torch"): shown}
    assert found.of(Container("team", "train-0", "torch")) == {}, "no label is taken without a pattern"


def test_whole_pods_are_asked_for_where_images_are_wanted_and_in_smaller_pages(
    api: FakeApiServer, account: Path
) -> None:
    api.run("train-0", "torch", "train:1", f"train@{DIGEST}")
    assert not reader(api, account).read().images
    PodLabelReader(ApiServer("node-1", api.url, account), (), images=True).read()
    assert [headers["Accept"].startswith("application/json;as=Partial") for headers in api.headers] == [True, False]
    assert [query["limit"] for query in api.asked] == [["500"], ["250"]]


def test_a_container_that_has_no_image_yet_is_not_known(api: FakeApiServer, account: Path) -> None:
    api.run("train-0", "torch", "train:1", "")
    assert PodLabelReader(ApiServer("node-1", api.url, account), (), images=True).read().images == {}


def test_a_process_has_the_image_of_its_container_once_its_pod_is_known(
    api: FakeApiServer, account: Path, tmp_path: Path
) -> None:
    node = Node(tmp_path / "node")
    node.process(7, f"/kubepods/burstable/pod{UID}/{ID}")
    node.process(8, "/user.slice")
    settings = replace(node.settings, api_server=ApiServer("node-1", api.url, account), images=True)
    made = Attribution(settings, on_error=node.errors.append)
    made.refresh()
    assert made.image_of_pid(7) == ""
    node.log_of("train-0", "team", "torch", ID)
    api.run("train-0", "torch", "train:1", f"train@{DIGEST}")
    made.refresh()
    assert (made.image_of_pid(7), made.image_of_pid(8), made.image_of_pid(9)) == ("train:1@0123456789ab", "", "")
    assert made.labels_of_pid(GPU_0, 7) == {"pod": "train-0", "namespace": "team", "container": "torch"}
    assert not Attribution(node.settings, on_error=node.errors.append).image_of_pid(7), "images are off by default"


def test_the_request_is_cheap_for_the_api_server(api: FakeApiServer, account: Path) -> None:
    reader(api, account).read()
    (query,), (headers,) = api.asked, api.headers
    assert query == {"fieldSelector": ["spec.nodeName=node-1"], "limit": ["500"], "resourceVersion": ["0"]}
    assert "PartialObjectMetadataList" in headers["Accept"]


def test_a_renewed_token_is_read_again(api: FakeApiServer, account: Path) -> None:
    api.add("a", app="x")
    made = reader(api, account)
    (account / "token").write_text("an-old-token")
    with pytest.raises(ApiServerError, match="answered 401"):
        made.read()
    (account / "token").write_text("the-token")
    assert made.read().pods


def test_a_missing_right_is_named_and_the_token_is_not(api: FakeApiServer, account: Path) -> None:
    api.status = 403
    with pytest.raises(ApiServerError, match=r"answered 403 .* allowed to list pods") as caught:
        reader(api, account).read()
    assert "the-token" not in str(caught.value)


def test_a_redirect_is_not_followed_with_the_token(api: FakeApiServer, account: Path) -> None:
    other = FakeApiServer()
    try:
        api.status, api.location = 302, f"{other.url}/api/v1/pods"
        with pytest.raises(ApiServerError, match="answered 302"):
            reader(api, account).read()
        assert not other.asked
    finally:
        other.shutdown()
        other.server_close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"items": 5}',
        b"null",
        b'{"items": [1]}',
        b'{"items": [{"metadata": {"labels": [1]}}]}',
        b'{"metadata": 5}',
        b"\xff",
    ],
)
def test_an_answer_without_a_list_of_pods_is_an_error_with_its_reason(
    api: FakeApiServer, account: Path, body: bytes
) -> None:
    api.body = body
    with pytest.raises(ApiServerError, match="no list of pods"):
        reader(api, account).read()


class RawServer:
    """Answers one request with these bytes, and closes the connection when `close` is called."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.may_close = threading.Event()
        self.closes = False
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(self._answer)
            self.may_close.wait(5)
            self.closes = True

    def close(self) -> None:
        self.may_close.set()
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", b"SSH-2.0-x\r\n"])
def test_an_answer_that_ends_early_or_is_not_http_is_an_error_with_its_reason(answer: bytes, account: Path) -> None:
    server = RawServer(answer)
    server.may_close.set()
    with pytest.raises(ApiServerError, match="no list of pods"):
        PodLabelReader(ApiServer("node-1", server.url, account), ("x",)).read()
    server.close()


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up_at_the_deadline(account: Path, begin: bytes) -> None:
    """Each byte came within the time limit of the socket, so that the exporter waited for days."""
    server = RawServer(begin)
    times = iter((0.0, 1.0, 1.0))  # the start, the connection and the first bytes
    made = PodLabelReader(ApiServer("node-1", server.url, account), ("x",), monotonic=lambda: next(times, 31.0))
    with pytest.raises(TimeoutError, match="no whole answer came in 30 s"):
        made.read()
    assert not server.closes, "it was given up after the first byte"
    server.close()


@pytest.mark.parametrize("status", [410, 429, 503])
def test_only_a_refusal_is_explained_by_missing_rights(api: FakeApiServer, account: Path, status: int) -> None:
    api.status = status
    with pytest.raises(ApiServerError, match=f"answered {status} ") as caught:
        reader(api, account).read()
    assert "allowed to list pods" not in str(caught.value)


def test_a_list_without_an_end_is_an_error_and_no_part_of_it_is_used(api: FakeApiServer, account: Path) -> None:
    for number in range(2 * MAX_PAGES + 1):
        api.add(f"train-{number}", app="x")
    with pytest.raises(ApiServerError, match="more than 20 pages"):
        reader(api, account).read()
    api.pods.pop()
    assert len(reader(api, account).read().pods) == 2 * MAX_PAGES


def test_a_token_is_never_sent_in_plain_text_to_another_host(account: Path) -> None:
    made = PodLabelReader(ApiServer("n", "http://10.0.0.1:8080", account), ("x",))
    with pytest.raises(ApiServerError, match="has to begin with https://"):
        made.read()


def test_outside_a_cluster_the_setting_is_named() -> None:
    with pytest.raises(ApiServerError, match=r"KUBERNETES_SERVICE_HOST is not set.*kubernetes_api_url"):
        ApiServer("n").address({})
    assert ApiServer("n").address({"KUBERNETES_SERVICE_HOST": "fd00::1"}) == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("app.kubernetes.io/name", "app_kubernetes_io_name"),
        ("team", "team"),
        ("pod_uid", "pod_label_pod_uid"),
        ("gpu", "pod_label_gpu"),
        ("namespace", "pod_label_namespace"),
        ("job", "pod_label_job"),
        ("1st", "pod_label_1st"),
        ("DCGM_FI_DEV_SERIAL", "pod_label_DCGM_FI_DEV_SERIAL"),
    ],
)
def test_a_label_never_takes_the_name_of_one_of_ours(key: str, name: str) -> None:
    assert label_name(key) == name


def test_the_labels_of_a_pod_are_bounded_and_a_pattern_matches_anywhere_as_with_dcgm_exporter(account: Path) -> None:
    made = PodLabelReader(ApiServer("n", "", account), ("team",))
    assert made.allowed({"my-team-name": "a", "app": "b"}) == {"my_team_name": "a"}
    assert len(made.allowed({f"team{number}": "x" for number in range(100)})) == MAX_LABELS


def test_an_empty_label_takes_neither_a_name_nor_a_place(account: Path) -> None:
    made = PodLabelReader(ApiServer("n", "", account), ("",))
    assert made.allowed({"a-b": "", "a_b": "x"}) == {"a_b": "x"}
    empty = {f"a{number}": "" for number in range(MAX_LABELS)}
    assert made.allowed({**empty, "z": "x"}) == {"z": "x"}


def test_a_process_in_a_pod_carries_the_pods_labels_beside_its_name(api: FakeApiServer, account: Path) -> None:
    api.add("train-0", app="train", pod="a label that claims to be the name")
    settings = AttributionSettings(
        api_server=ApiServer("node-1", api.url, account), pod_label_patterns=("^app$", "^pod$")
    )
    made = Attribution(settings, on_error=lambda _source: None)
    container = Container("team", "train-0", "main")
    assert "app" not in made._labels_of_container(container)
    made._pod_labels.refresh()
    assert made._labels_of_container(container) == {
        "app": "train",
        "container": "main",
        "namespace": "team",
        "pod": "train-0",
        "pod_label_pod": "a label that claims to be the name",
    }


def test_a_container_is_asked_for_once_for_its_labels_and_once_for_its_image(
    monkeypatch: pytest.MonkeyPatch, account: Path
) -> None:
    """Also after a thousand pods that have ended; neither answer makes the other question come again."""
    settings = AttributionSettings(api_server=ApiServer("n", "", account), pod_label_patterns=("^app$",), images=True)
    made = Attribution(settings, on_error=lambda _source: None)
    early: list[None] = []
    answers = SimpleNamespace(value=PodLabels({}), soon=lambda: early.append(None))
    monkeypatch.setattr(made, "_pod_labels", answers)
    for number in range(MAX_MISSED + 500):
        made._labels_of_container(Container("team", f"ended-{number}", "main"))
    assert len(early) == MAX_MISSED + 500

    early.clear()
    container = Container("team", "train-0", "main")
    answers.value = PodLabels({("team", "train-0"): {"app": "train"}})
    monkeypatch.setattr(attribution, "membership", lambda *_: SimpleNamespace(pod_uid="u"))
    monkeypatch.setattr(made, "_names", SimpleNamespace(value=SimpleNamespace(of=lambda _member: container)))
    for _ in range(10):
        made._labels_of_container(container)
        made.image_of_pid(4001)
    assert len(early) == 1


def test_the_uid_of_a_pod_is_the_api_servers_where_it_is_asked_anyway(api: FakeApiServer, account: Path) -> None:
    """The uid is that of a pod in kubernetes-sigs/dra-driver-nvidia-gpu, issue 719."""
    uid = "f859ed88-842a-46a0-8bd0-085ee5d3353d"
    api.add("train-0", app="train")
    api.pods[-1]["metadata"]["uid"] = uid
    settings = AttributionSettings(api_server=ApiServer("node-1", api.url, account), pod_label_patterns=("^app$",))
    container = Container("team", "train-0", "main")
    for wanted, shown in ((False, {"app": "train"}), (True, {"app": "train", "pod_uid": uid})):
        made = Attribution(replace(settings, pod_uids=wanted), on_error=lambda _source: None)
        made._pod_labels.refresh()
        assert made._labels_of_pod(container) == shown


def test_without_a_pattern_nothing_is_asked(api: FakeApiServer) -> None:
    made = Attribution(AttributionSettings(), on_error=lambda _source: None)
    made.refresh()
    assert not api.asked


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        ExporterSettings(kubernetes_pod_label_allowlist_regex=("(",))
