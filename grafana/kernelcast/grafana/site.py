"""One file that describes a site: the addresses, access and names that generated files need."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import yaml

from kernelcast.grafana.addresses import KERNELS
from kernelcast.grafana.inputs import (
    BRIDGE_JOB,
    DCGM_EXPORTER_JOB,
    EXPORTER_JOB,
    PREDICTOR_JOB,
    Jobs,
    Thresholds,
)
from kernelcast.grafana.rules.model import PRODUCTION, PROFILES, RUNBOOKS_URL, Profile
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.options import did_you_mean

T = TypeVar("T")

BRIDGE: Final = "localhost:19401"
EXPORTER: Final = "localhost:19400"
PREDICTOR: Final = "localhost:19402"
ALERTMANAGER: Final = "localhost:9093"
PROMETHEUS_URL: Final = "http://localhost:9090"
DASHBOARDS_PATH: Final = "/var/lib/grafana/dashboards/kernelcast"
SCHEMES: Final = ("http", "https")
_MAX_BYTES: Final = 256 * 1024
_IDLE_HOURS: Final = (0.1, 720)
"""Least and most hours for which a GPU with an owner is idle: more than a few scrapes, less than a retention."""
_KINDS: Final[Mapping[Any, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    tuple: "a list of texts",
    Mapping: "a mapping of texts; numbers need quotes",
}


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """TLS and the user of a web server; a password is named by its file and never written.

    Attributes:
        scheme: http or https.
        ca_file: Certificate of the authority that signed the server's, on the client's machine; empty for the system's.
        username: User of the server's web configuration; empty for none.
        password_file: File that holds the password, on the client's machine.
    """

    scheme: str = "http"
    ca_file: str = ""
    username: str = ""
    password_file: str = ""

    def client(self) -> dict[str, Any]:
        """The settings of an HTTP client, as Prometheus and Alertmanager write them; the scheme is not among them."""
        tls = {"tls_config": {"ca_file": self.ca_file}} if self.ca_file else {}
        user = {"username": self.username, "password_file": self.password_file}
        return tls | ({"basic_auth": user} if self.username else {})


@dataclass(frozen=True, slots=True)
class Targets:
    """Instances of one service, each as `HOST:PORT`, and the access to them; no target means that none runs."""

    targets: tuple[str, ...] = ()
    access: ServerAccess = ServerAccess()


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Prometheus: as Grafana reaches it, and its intervals and rule files."""

    url: str = PROMETHEUS_URL
    scrape_interval_seconds: int = 15
    rules_directory: str = "rules"


@dataclass(frozen=True, slots=True)
class GrafanaServer:
    """Grafana: its address, the folder of our dashboards, and the directory on its machine for provisioned ones."""

    url: str = ""
    folder: str = "kernelcast"
    dashboards_path: str = DASHBOARDS_PATH
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class JobNames:
    """Jobs under which Prometheus scrapes the services: monitors of the operator name them after Services."""

    bridge: str = BRIDGE_JOB
    exporter: str = EXPORTER_JOB
    predictor: str = PREDICTOR_JOB
    dcgm_exporter: str = DCGM_EXPORTER_JOB


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """Names of the objects in a cluster.

    Attributes:
        namespace: Namespace of every object.
        labels: Labels of rules and monitors, by which a Prometheus of the operator selects them.
        dashboard_label: Label by which Grafana's sidecar selects ConfigMaps; its value is "1".
        tls_secret: Secret with `ca.crt`, where services serve TLS.
        user_secret: Secret with `username` and `password`, where services ask for a user.
    """

    namespace: str = "kernelcast"
    labels: Mapping[str, str] = field(default_factory=dict)
    dashboard_label: str = "grafana_dashboard"
    tls_secret: str = ""
    user_secret: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """A site; every field has a default that suits a trial on one machine.

    Attributes:
        profile: Clock of the rules: production or demo.
        dashboard_url: The dashboard of kernels, to which alerts lead; empty for the one in `grafana.url`. Without
            either, alerts have no such link.
        runbooks_url: Where people read the runbooks: a page with a heading for each, or the bridge's `/runbooks/`.
        bridge: Bridges.
        exporter: Exporters, for their own health; the only source of metrics where there is no bridge.
        predictor: Predictors.
        dcgm_exporter: NVIDIA's exporters beside ours; device metrics then come from them.
        alertmanager: Alertmanagers that Prometheus notifies.
        prometheus: Prometheus.
        grafana: Grafana.
        kubernetes: Names in a cluster.
        jobs: Names of the scrape jobs.
        thresholds: Values from which alerts fire.
        prices: Price of a GPU-hour by model, as NVML names it, for recordings of what GPU-hours cost.
    """

    profile: str = PRODUCTION.name
    dashboard_url: str = ""
    runbooks_url: str = RUNBOOKS_URL
    bridge: Targets = Targets((BRIDGE,))
    exporter: Targets = Targets((EXPORTER,))
    predictor: Targets = Targets((PREDICTOR,))
    dcgm_exporter: Targets = Targets()
    alertmanager: Targets = Targets((ALERTMANAGER,))
    prometheus: Prometheus = Prometheus()
    grafana: GrafanaServer = GrafanaServer()
    kubernetes: Kubernetes = Kubernetes()
    jobs: JobNames = JobNames()
    thresholds: Thresholds = field(default_factory=Thresholds)
    prices: Mapping[str, float] = field(default_factory=dict)

    @property
    def rules_profile(self) -> Profile:
        """The rules' profile with this site's addresses, jobs and thresholds, without services that have no target."""
        jobs = Jobs(
            bridge=self.jobs.bridge if self.bridge.targets else None,
            predictor=self.jobs.predictor if self.predictor.targets else None,
            exporter=self.jobs.exporter if self.exporter.targets else None,
        )
        return replace(
            PROFILES[self.profile],
            dashboard_url=self.kernels_page,
            runbooks_url=self.runbooks_url,
            jobs=jobs,
            thresholds=self.thresholds,
            prices=self.prices,
        )

    @property
    def kernels_page(self) -> str:
        """The address of the dashboard of kernels; empty where there is no Grafana."""
        own = f"{self.grafana.url.rstrip('/')}/d/{KERNELS}" if self.grafana.url else ""
        return self.dashboard_url or own


TRIAL: Final = Site()
"""Everything on one machine, without TLS and users."""
OPEN: Final = ServerAccess()
"""Access to a server without TLS and users."""


def read(path: Path | None) -> Site:
    """Read a site's file; None gives the defaults.

    Raises:
        ConfigurationError: The file cannot be read, or lists every key that is wrong.
    """
    if path is None:
        return TRIAL
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; give another --site") from error
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"{path} has {len(content)} bytes; the maximum is {_MAX_BYTES}; is it a site's file?")
    try:
        document = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        raise ConfigurationError(f"{path} has no settings; write some, or leave out --site: then all is on one machine")
    problems: list[str] = []
    site = _made(Site, document, "", problems)
    problems = problems or contradictions(site)
    if problems:
        raise ConfigurationError("\n".join(f"{path}: {problem}" for problem in problems))
    return site


def _made(kind: type[T], value: Any, path: str, problems: list[str]) -> T:
    """Make a dataclass of a mapping; problems are added to a list."""
    if not isinstance(value, Mapping):
        problems.append(f"{path or 'the file'} must be a mapping of names to values, not {value!r:.60}")
        value = {}
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    unknown = [key for key in value if key not in known]
    problems.extend(f"{_below(path, key)} is not a setting{did_you_mean(str(key), known)}" for key in unknown)
    settings = {name: _value(hints[name], value[name], _below(path, name), problems) for name in known if name in value}
    return kind(**settings)


def _value(kind: Any, value: Any, path: str, problems: list[str]) -> Any:
    if is_dataclass(kind):
        return _made(kind, value, path, problems)  # type: ignore[arg-type]
    origin = get_origin(kind)
    if origin is tuple and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if origin is Mapping and isinstance(value, dict) and _is_mapping_to(get_args(kind)[1], value):
        return dict(value)
    if origin is None and type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    prices = kind == Mapping[str, float]
    wanted = "a mapping of models to numbers" if prices else _KINDS[origin or kind]
    problems.append(f"{path} must be {wanted}, not {value!r:.60}")
    return value


def _is_mapping_to(kind: type, mapping: Mapping[Any, Any]) -> bool:
    kinds = {kind, int} if kind is float else {kind}
    return all(isinstance(key, str) and type(value) in kinds for key, value in mapping.items())


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def contradictions(site: Site) -> list[str]:
    """Settings of the right kind whose values no tool would take, each a sentence that begins with its path."""
    found = []
    if site.profile not in PROFILES:
        found.append(f"profile is {site.profile!r}; it must be one of {', '.join(PROFILES)}")
    interval = site.prometheus.scrape_interval_seconds
    if interval < 1:
        found.append(f"prometheus.scrape_interval_seconds is {interval}; the minimum is 1; raise it")
    for name in ("bridge", "exporter", "predictor", "dcgm_exporter", "alertmanager"):
        service: Targets = getattr(site, name)
        found.extend(f"{name}.access.{problem}" for problem in access_problems(service.access))
        found.extend(
            f"{name}.targets has {target!r}; each must be HOST:PORT, without a scheme"
            for target in service.targets
            if "/" in target or not target.rpartition(":")[2].isdecimal()
        )
    found.extend(_impossible(site.thresholds))
    found.extend(
        f'prices has {price} for {model!r}; a price must be a finite number, and a model cannot have " or \\'
        for model, price in site.prices.items()
        if not 0 <= price < math.inf or set('"\\\n') & set(model)
    )
    if site.runbooks_url and not is_web_address(site.runbooks_url):
        found.append(f"runbooks_url is {site.runbooks_url!r}; it must be like http://bridge-1:19401/runbooks/")
    if "#" in site.runbooks_url:
        found.append(f"runbooks_url is {site.runbooks_url!r}; leave out # and what follows: links add the alert there")
    if site.grafana.url and not is_web_address(site.grafana.url):
        found.append(f"grafana.url is {site.grafana.url!r}; it must be like https://grafana.example")
    return found


def _impossible(thresholds: Thresholds) -> Iterator[str]:
    """A comparison with NaN or infinity never fires; the idle time is also the range of a query."""
    for name, value in asdict(thresholds).items():
        if not math.isfinite(value):
            yield f"thresholds.{name} is {value}; it must be a finite number"
    least, most = _IDLE_HOURS
    if math.isfinite(thresholds.idle_hours) and not least <= thresholds.idle_hours <= most:
        yield f"thresholds.idle_hours is {thresholds.idle_hours:g}; it must be from {least} to {most}"


def access_problems(access: ServerAccess) -> list[str]:
    """Problems of an access, each a sentence that begins with the setting's name."""
    found = []
    if access.scheme not in SCHEMES:
        found.append(f"scheme is {access.scheme!r}; it must be one of {', '.join(SCHEMES)}")
    if access.ca_file and access.scheme != "https":
        found.append(f"ca_file is {access.ca_file}; it needs scheme https")
    if bool(access.username) != bool(access.password_file):
        found.append("username and password_file belong together; give both or neither")
    return found


def is_web_address(url: str) -> bool:
    """Whether a text is an address of HTTP or HTTPS with a host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in SCHEMES and bool(parts.hostname)
