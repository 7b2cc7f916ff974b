"""A site's file: read with its defaults, or refused with every mistake named."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernelcast.grafana import site
from kernelcast.wire.errors import ConfigurationError


def written(directory: Path, text: str) -> Path:
    path = directory / "site.yaml"
    path.write_text(text)
    return path


def test_without_a_file_the_defaults_hold() -> None:
    assert site.read(None) == site.Site()


def test_what_is_given_replaces_the_defaults(tmp_path: Path) -> None:
    found = site.read(
        written(
            tmp_path,
            """
bridge:
  targets: [b1:19401, "[::1]:19401"]
  access: {scheme: https, ca_file: /etc/ca.pem, username: prometheus, password_file: /etc/password}
exporter: {targets: []}
prometheus: {scrape_interval_seconds: 5}
kubernetes: {labels: {release: prometheus}}
""",
        )
    )
    assert found.bridge.targets == ("b1:19401", "[::1]:19401")
    assert found.bridge.access.client() == {
        "tls_config": {"ca_file": "/etc/ca.pem"},
        "basic_auth": {"username": "prometheus", "password_file": "/etc/password"},
    }
    assert (found.exporter.targets, found.prometheus.scrape_interval_seconds) == ((), 5)
    assert found.kubernetes.labels == {"release": "prometheus"}
    assert found.kernels_page == ""
    assert replace(found, grafana=site.GrafanaServer(url="https://g/")).kernels_page == "https://g/d/kernelcast-kernels"
    assert found.predictor == site.Site().predictor


def test_every_mistake_is_named_at_once_with_its_path(tmp_path: Path) -> None:
    text = "bridges: {}\nprofile: 3\nbridge: {targets: b:1, acess: {}}\nkubernetes: {labels: {a: 1}}\nprometheus: []\n"
    with pytest.raises(ConfigurationError) as raised:
        site.read(written(tmp_path, text))
    said = str(raised.value)
    for part in (
        "bridges is not a setting",
        "profile must be text, not 3",
        "bridge.acess is not a setting; did you mean access?",
        "bridge.targets must be a list of texts",
        "kubernetes.labels must be a mapping of texts",
        "prometheus must be a mapping",
    ):
        assert part in said
    assert all(line.startswith(str(tmp_path)) for line in said.splitlines())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("profile: fast", "must be one of production, demo"),
        ("bridge: {targets: ['http://b:1']}", "without a scheme"),
        ("bridge: {access: {username: u}}", "username and password_file belong together"),
        ("bridge: {access: {scheme: ftp}}", "must be one of http, https"),
        ("bridge: {access: {ca_file: /ca}}", "needs scheme https"),
        ("prometheus: {scrape_interval_seconds: 0}", "the minimum is 1"),
        ("runbooks_url: 'https://wiki.example/kernelcast#top'", "leave out # and what follows"),
        ("runbooks_url: 'https://wiki.example/kernelcast#'", "leave out # and what follows"),
        ("grafana: {url: grafana}", "must be like https://grafana.example"),
        ("a: b: c", "is not YAML"),
        ("[1]", "the file must be a mapping"),
        ("", "has no settings; write some, or leave out --site"),
        ("# bridge: {targets: ['b:1']}", "has no settings"),
    ],
)
def test_a_setting_that_no_tool_would_take_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        site.read(written(tmp_path, text))


def test_a_file_that_is_missing_or_far_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        site.read(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="the maximum is"):
        site.read(written(tmp_path, "#" * 300_000))
