"""Admits series of Prometheus: metrics that the predictor uses, each under an identity that jobs do not change.

dcgm-exporter's labels `pod`, `namespace`, `container` and `hpc_job` begin another series of Prometheus at each job.
Here a series of a GPU is (metric, UUID, instance) and the row's own labels, such as a link; everything else is an
attribute. `Source` and `PastReader` look rows up here. Its user holds the engine's lock.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kernelcast.predictor.engine import Engine
from kernelcast.predictor.prometheus import Labels
from kernelcast.predictor.series.attributes import COMPANIONS, DEVICE_METRICS
from kernelcast.predictor.series.subjects import DEVICE_NAMES, VARIANT, Form, Subject
from kernelcast.predictor.series.windows import NOT_ADMITTED
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, OWN_NAMES, Kind, Metric, own_name
from kernelcast.wire.catalogue.devices.device import DEVICE_LABELS, GPU_TEMP, USER_LABELS
from kernelcast.wire.catalogue.features import THERMAL_MARGIN
from kernelcast.wire.catalogue.meanings import MEANINGS

HOSTNAME: Final = "hostname"
"""dcgm-exporter's name of `Hostname` after 4.8.2 (d5e5f51)."""
MANY_SERIES: Final = 20_000
"""Series from which on the log warns: each cycle and each poll takes seconds of a core."""
OWNER: Final = 0
"""Number of the only partition: Prometheus."""

_IDENTITY: Final = ("UUID", "GPU_I_ID")
_MESSAGES: Final = frozenset({"err_code", "err_msg"})
"""Labels that say the value once more."""
_FORMS: Final = {Kind.GAUGE: Form.LEVEL, Kind.COUNTER: Form.RATE, Kind.HISTOGRAM: Form.MEAN}

_log = get_logger(__name__)

Identity = tuple[str, tuple[str, ...]]
"""Metric, and the values of the labels that make its identity."""


def admitted(settings: PredictorSettings) -> dict[str, Metric]:
    """Rows of the catalogue that are read from Prometheus, by name: those with a limit, and those that explain them.

    Metrics that the settings select, limit or publish are admitted, too.
    """
    names = {*MEANINGS, *COMPANIONS, *DEVICE_METRICS, *settings.judge.thresholds}
    chosen = [re.compile(matcher.metric) for matcher in (*settings.limits, *settings.publish) if matcher.metric != ".*"]
    names |= {name for name in BY_PROMETHEUS_NAME if any(pattern.fullmatch(name) for pattern in chosen)}
    rows = {name: row for name, row in BY_PROMETHEUS_NAME.items() if name in names and row.kind in _FORMS}
    rows.pop(VARIANT, None)  # a part of it only: its launches and its labels do not leave Kafka
    return dict(sorted({**rows, THERMAL_MARGIN.prometheus_name: THERMAL_MARGIN}.items()))


class Admission:
    """Rows of the windows for series of Prometheus.

    Attributes:
        metrics: The admitted rows of the catalogue, by name.
        attributes: By UUID and instance, the newest labels of a GPU's user, such as its pod.
        foreign: Number of series that were refused because they name no GPU and no program.
    """

    def __init__(self, settings: PredictorSettings, engine: Engine) -> None:
        self.metrics = admitted(settings)
        self.attributes: dict[tuple[str, str], dict[str, str]] = {}
        self.foreign = 0
        self._engine = engine
        self._rows: dict[Labels, tuple[int, int]] = {}
        self._newest: dict[Identity, Labels] = {}
        self._warned = False

    def __len__(self) -> int:
        """Number of series that Prometheus has; without the limits that follow from the model of a GPU."""
        return len(self._newest)

    def names(self, *kinds: Kind) -> list[str]:
        """Names in Prometheus of the admitted metrics of these kinds, DCGM's other names of them included."""
        own = [name for name, row in self.metrics.items() if row.kind in kinds]
        return own + [other for other, name in OWN_NAMES.items() if name in own]

    def metric(self, labels: Labels, default: str = "") -> str:
        """The catalogue's name of a series."""
        name = dict(labels).get("__name__", default)
        return own_name(name)

    def row(self, labels: Labels, metric: str = "") -> int:
        """The row of a series, admitted if it is new; NOT_ADMITTED if it is foreign or beyond the limit.

        Args:
            labels: As Prometheus has them.
            metric: Its name, where the expression has dropped it.
        """
        key = labels if not metric else (("__name__", metric), *labels)
        row, generation = self._rows.get(key, (NOT_ADMITTED, 0))
        if row != NOT_ADMITTED and self._engine.windows.generation[row] == generation:
            return row
        if (key in self._rows) and generation < 0:
            return NOT_ADMITTED  # foreign for ever
        return self._admit(key, dict(key))

    def _admit(self, key: Labels, labels: dict[str, str]) -> int:
        name = own_name(labels.get("__name__", ""))
        subject = self._subject(name, labels)
        if subject is None:
            self.foreign += 1
            self._rows[key] = (NOT_ADMITTED, -1)
            return NOT_ADMITTED
        windows = self._engine.windows
        identity = self._identity(subject)
        if identity in self._newest and self._newest[identity] != subject.labels:
            # The GPU's index, its driver or the exporter's pod has changed: it is the same series.
            before = Subject(name, subject.form, self._newest[identity])
            self._engine.rename(before, subject)
        row = windows.admit(subject, owner=OWNER)
        if row == NOT_ADMITTED:
            return row  # tried again: others may expire
        self._newest[identity] = subject.labels
        self._rows[key] = (row, int(windows.generation[row]))
        self._note_user(labels)
        if len(windows) > MANY_SERIES and not self._warned:
            self._warned = True
            _log.warning(
                "many series",
                series=len(windows),
                remedy="choose fewer with predictor.prometheus.matchers, or run several predictors",
            )
        return row

    def find(self, labels: Labels, metric: str) -> int | None:
        """The row of a series that is admitted already, under these labels or others; None for another series."""
        subject = self._subject(metric, dict(labels))
        newest = self._newest.get(self._identity(subject)) if subject is not None else None
        return None if newest is None or subject is None else self._engine.windows.row(replace(subject, labels=newest))

    def has(self, metric: str, device: tuple[str, str]) -> bool:
        """Whether Prometheus has a metric of a GPU, which is its UUID and its instance."""
        return (metric, device) in self._newest

    def knows(self, labels: Mapping[str, str]) -> bool:
        """Whether there is a series of the GPU or the program that labels name."""
        device = labels.get("UUID", ""), labels.get("GPU_I_ID", "")
        program = labels.get("program", "")
        return self.has(GPU_TEMP.prometheus_name, device) or any(
            dict(known).get("program") == program for known in self._newest.values() if program
        )

    def forget(self, rows: Iterable[int]) -> None:
        """Forget dropped rows; their series are admitted again at their next value."""
        gone = set(rows)
        self._rows = {key: row for key, row in self._rows.items() if row[0] not in gone}
        if len(self._newest) > 2 * len(self._engine.windows) + 1000:
            live = {self._identity(subject) for subject, _ in self._engine.windows.items()}
            self._newest = {identity: labels for identity, labels in self._newest.items() if identity in live}

    def _subject(self, name: str, labels: dict[str, str]) -> Subject | None:
        row = self.metrics.get(name)
        if row is None:
            return None
        known = row.labels or DEVICE_LABELS
        if HOSTNAME in labels:
            labels = {"Hostname": labels[HOSTNAME]} | labels
        kept = tuple(sorted((label, labels[label]) for label in known if labels.get(label) and label not in _MESSAGES))
        names = {label for label, _ in kept}
        if not ({"UUID"} <= names or {"program"} <= names):
            return None
        return Subject(name, _FORMS[row.kind], kept)

    def _identity(self, subject: Subject) -> Identity:
        labels = dict(subject.labels)
        if subject.metric not in DEVICE_NAMES and "program" in labels:
            return subject.metric, tuple(f"{name}={value}" for name, value in subject.labels)
        own = [label for label in labels if label not in DEVICE_LABELS]
        return subject.metric, tuple(labels.get(name, "") for name in (*_IDENTITY, *own))

    def _note_user(self, labels: dict[str, str]) -> None:
        # Prometheus calls a label of the exporter `exported_pod` where the target has one of that name.
        user = {name: labels.get(f"exported_{name}") or labels.get(name, "") for name in USER_LABELS}
        if any(user.values()):
            known = {name: value for name, value in user.items() if value}
            self.attributes[labels.get("UUID", ""), labels.get("GPU_I_ID", "")] = known
