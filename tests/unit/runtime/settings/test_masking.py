"""No user, password or token of any setting is printed."""

import io
import json
import logging
import time
from pathlib import Path

import pytest

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.exits import report
from kernelcast.runtime.logging import configure, get_logger
from kernelcast.runtime.settings.masking import MASKED, mask, without_secrets, without_userinfo
from kernelcast.runtime.settings.service import LogSettings, load
from kernelcast.runtime.web.config import read_web_config
from kernelcast.wire.errors import BrokerError, ConfigurationError

PASSWORD = "TOPSECRET5"


def refusal(file: Path, content: str) -> str:
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        load("bridge", BridgeSettings, path=file, flags={}, environ={})
    return str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        f"bridge: {{pages: {{prometheus_url: 'http://user:{PASSWORD}@host/'}}}}",
        f"bridge: {{pages: {{prometheus_url: 'http://user:a/{PASSWORD}@host/'}}}}",
        f"bridge: {{pages: {{prometheus_url: 'http://{'u' * 90}:{PASSWORD}@host/'}}}}",
        f"bridge: {{pages: {{prometheus_url: 'http://{PASSWORD}@host/'}}}}",
        f"bridge: {{pages: {{prometheus_url: 'user:{PASSWORD}@host'}}}}",
        f"bridge: {{pages: ['http://user:{PASSWORD}@host/']}}",
        f"bridge: {{pages: 'http://user:{PASSWORD}@host/'}}",
        f"bridge: {{pages: {{bearer_token_file: [Bearer {PASSWORD}]}}}}",
        f"bridge: {{pages: {{basic_auth: 'user:{PASSWORD}@'}}}}",
        f"bridge: {{pages: {{basic_auth: {{password: [{PASSWORD}]}}}}}}",
        f"bridge: {{web: 'http://user:{PASSWORD}@host'}}",
        f"kafka: 'bootstrap_servers=user:{PASSWORD}@host:9092'",
        f"kafka: {{bootstrap_servers: ['user:{PASSWORD}@host:9092']}}",
        f"kafka: {{properties: 'sasl.password={PASSWORD}'}}",
        f"kafka: {{properties: [{{sasl.password: {PASSWORD}}}]}}",
        f"kafka: {{properties: {{sasl.password: [{PASSWORD}]}}}}\nbridge: {{ttl_seconds: 0}}",
        f"bridge: {{ttl_seconds: 'https://user:{PASSWORD}@host'}}",
    ],
)
def test_no_refused_setting_prints_a_password(content: str, tmp_path: Path) -> None:
    said = refusal(tmp_path / "kernelcast.yaml", content)
    assert PASSWORD not in said
    assert MASKED in said or "ttl_seconds is 0" in said


def test_a_refused_address_is_shown_but_for_its_user_and_password(tmp_path: Path) -> None:
    content = f"bridge: {{pages: {{prometheus_url: 'http://user:{PASSWORD}@host/x'}}}}"
    said = refusal(tmp_path / "kernelcast.yaml", content)
    assert said.startswith(f"bridge.pages.prometheus_url is http://{MASKED}@host/x (")
    assert said.endswith("it must hold no user or password; set basic_auth")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host:9090/a", "http://host:9090/a"),
        ("http://u:p@host:9090/a", f"http://{MASKED}@host:9090/a"),
        ("a:1,b:2", "a:1,b:2"),
        ("u:p@a:1,b:2", f"{MASKED}@a:1,b:2"),
        ("a:1,u:p@b:2", f"{MASKED}@b:2"),
        ("Connect to ssl://u:p@a:1/bootstrap failed", f"Connect to ssl://{MASKED}@a:1/bootstrap failed"),
        ("mail to admin@example.com", "mail to admin@example.com"),
        ("node@rack", "node@rack"),
        ("void f<a::b>(int)", "void f<a::b>(int)"),
        ("12:30:01 @ noon", "12:30:01 @ noon"),
    ],
)
def test_addresses_lose_user_and_password_and_other_text_stays(text: str, shown: str) -> None:
    assert without_userinfo(text) == shown


def test_properties_of_librdkafka_are_printed_without_user_and_password() -> None:
    properties = {"sasl.oauthbearer.token.endpoint.url": "x", "bootstrap.servers": "u:p@a:1", "client.rack": "r"}
    assert mask(properties) == {
        "sasl.oauthbearer.token.endpoint.url": MASKED,
        "bootstrap.servers": f"{MASKED}@a:1",
        "client.rack": "r",
    }


def test_a_hash_in_a_users_name_is_not_printed(tmp_path: Path) -> None:
    hashed = "$2y$10$XYi5Y4lmK.6zWA4xjBUYTOSDJXX3xPAUkRS9qN7wvUEl6kzMcTzhW"
    (tmp_path / "web.yml").write_text(f"basic_auth_users:\n  prometheus{hashed}:\n")
    with pytest.raises(ConfigurationError) as caught:
        read_web_config(tmp_path / "web.yml")
    assert "prometheus<secret>" in str(caught.value)
    assert hashed not in str(caught.value)


@pytest.mark.parametrize("form", ["json", "logfmt"])
def test_no_log_line_has_user_and_password_of_an_address(form: str) -> None:
    stream = io.StringIO()
    configure(LogSettings(format=form), stream=stream)  # type: ignore[arg-type]
    url = f"http://user:{PASSWORD}@host:1"
    get_logger("bridge").warning("refused", url=url, several=[url], text=f"{url} answers 400")
    logging.getLogger("kafka").error("cannot resolve %s", f"user:{PASSWORD}@host:1")
    try:
        int(url)
    except ValueError:
        get_logger("bridge").exception("failed")
    assert PASSWORD not in stream.getvalue()
    assert stream.getvalue().count(f"{MASKED}@host:1") >= 5
    if form == "json":
        assert json.loads(stream.getvalue().splitlines()[0])["url"] == f"http://{MASKED}@host:1"


def test_an_error_that_ends_a_command_has_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    report(BrokerError(f"reaching Kafka at user:{PASSWORD}@host:9092 failed"))
    assert capsys.readouterr().err == f"kernelcast: reaching Kafka at {MASKED}@host:9092 failed\n"


@pytest.mark.parametrize(
    "text", ["@" + ",a:b" * 50_000, "a" * 1_000_000 + "@", "http://" * 30_000 + "@ ", "a:b@" * 50_000]
)
def test_long_texts_are_looked_through_quickly(text: str) -> None:
    began = time.process_time()
    without_secrets(text)
    assert time.process_time() - began < 5
