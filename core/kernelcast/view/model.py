"""What matters now, as frozen values: a `Picture`, made by `Recent` from the newest pages and the alerts.

`sections` arranges a picture in tables, which `text` draws in a terminal and `html` in a browser.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from kernelcast.view.page import ScrapedPage
from kernelcast.view.rates import History, KernelNow, ProgramNow
from kernelcast.view.words import duration, number, since, source_of, subject_of, time_left
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.devices.gpu import GPU_UP
from kernelcast.wire.verdict import verdict

SORTS: Final = ("time", "change", "launches", "mean", "name")
"""Orders of the kernels: share of GPU time now, slower than before, launches a second, mean duration, name."""
OLD_SECONDS: Final = 60.0
"""Age from which on figures are marked as old: several intervals of an exporter."""
PREDICTED: Final = 0.5
"""Probability of a breach from which it is shown as predicted."""
STILL_PREDICTED: Final = 0.2
"""Probability below which a breach that was shown is shown no more."""
IDLE_SECONDS: Final = 60.0
"""Time without a step from which a program is said to stand still, if it is also `IDLE_STEPS` steps long."""
IDLE_STEPS: Final = 10
NEAR_DEGREES: Final = 5.0
"""Distance from the slowdown temperature from which a temperature is near its limit."""
_HARDWARE_SLOWDOWN: Final = 0x08
_SOFTWARE_THERMAL: Final = 0x20
_HARDWARE_THERMAL: Final = 0x40
_POWER_BRAKE: Final = 0x80
_TROUBLE: Final = _HARDWARE_SLOWDOWN | _SOFTWARE_THERMAL | _HARDWARE_THERMAL | _POWER_BRAKE
"""Reasons for reduced clocks that mean trouble; the power cap, 0x4, is normal under load. A hardware slowdown is set
beside a hardware thermal slowdown and a power brake. By a software thermal slowdown the driver keeps the GPU from
becoming too hot.

Source: NVML API reference, nvmlClocksEventReasons."""
NEAR_SECONDS: Final = 300.0
"""Median time to a limit from which a prediction is bad news, not a warning."""
HEARTBEAT: Final = "Watchdog"
"""Name of the alert that always fires, as the site's rules of kernelcast define it."""
_ALERT_PREFIX: Final = "Kernelcast"
"""All names of our alerts begin with it; it is not shown."""
_ALERT_SUBJECT: Final = ("Hostname", "gpu", "program")
"""Labels by which alerts of one name are counted, as on the dashboards: a fault of a GPU slows many kernels at once."""
_ANSWERS: Final = ("kept", "rolled_back", "rejected", "applied", "received")
"""States of a hint, the last one first: the first that the page has is the state of a hint."""
_ALL_ALERTS: Final = {"critical": 0, "warning": 1}

Level = Literal["bad", "warn", "good", ""]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        node: Label `Hostname`.
        index: Label `gpu`.
        values: Value of each row of the catalogue, by its Prometheus name.
    """

    node: str
    index: str
    values: Mapping[str, float]

    def value(self, row: Any) -> float | None:
        """The value of a row of the catalogue."""
        return self.values.get(row.prometheus_name)

    @property
    def state(self) -> tuple[Level, str]:
        """What is wrong with it, in some words; empty where nothing is known to be."""
        if self.value(GPU_UP) == 0:
            return "bad", "does not answer"
        mask = self.value(device.CLOCK_EVENT_REASONS) or 0.0
        reasons = int(mask) & _TROUBLE if math.isfinite(mask) else 0
        if reasons:
            heat = "heat" if reasons & (_SOFTWARE_THERMAL | _HARDWARE_THERMAL) else ""
            brake = "power brake" if reasons & _POWER_BRAKE else ""
            words = " and ".join(filter(None, (heat, brake))) or "hardware"
            return "warn" if reasons == _SOFTWARE_THERMAL else "bad", f"slowed by {words}"
        return self.heat, {"bad": "at its limit", "warn": "near its limit"}.get(self.heat, "")

    @property
    def heat(self) -> Level:
        """Whether its temperature is at the slowdown temperature, or near it."""
        temperature, limit = self.value(device.GPU_TEMP), self.value(device.SLOWDOWN_TEMP)
        if temperature is None or limit is None or temperature < limit - NEAR_DEGREES:
            return ""
        return "bad" if temperature >= limit else "warn"

    @property
    def memory_mib(self) -> tuple[float | None, float | None]:
        """Memory that is used, and all of it."""
        used, free = self.value(device.FB_USED), self.value(device.FB_FREE)
        whole = used + free + (self.value(device.FB_RESERVED) or 0.0) if used is not None and free is not None else None
        return used, whole


@dataclass(frozen=True, slots=True)
class Prediction:
    """A limit that will probably be crossed, or was.

    Attributes:
        labels: Labels of the series, with `metric` and `cause`.
        probability: Of the horizon where it is highest; None where only the crossing is known.
        seconds_left: Median time until the limit is crossed.
        crossed_seconds_ago: Time since it was; None before.
    """

    labels: Mapping[str, str]
    probability: float | None = None
    seconds_left: float | None = None
    crossed_seconds_ago: float | None = None


@dataclass(frozen=True, slots=True)
class HintNow:
    """The state of the last hint for a tunable of a program, which lasts until the next one.

    Attributes:
        program: The program.
        tunable: The tunable.
        state: `issued`, `trial` or `approval` while it is open; then the last outcome.
        previous: Value that the tunable had before an open hint.
        proposed: Value of an open hint.
        value: The tunable's value now; empty where no process has it.
        expected_ratio: Kernel time that is expected with an open hint, relative to before.
        measured_ratio: Kernel time that the program measured, relative to before.
        issued: Number of hints for it.
    """

    program: str
    tunable: str
    state: str
    previous: str
    proposed: str
    value: str
    expected_ratio: float | None
    measured_ratio: float | None
    issued: float


@dataclass(frozen=True, slots=True)
class AlertGroup:
    """Alerts of one name that fire.

    Attributes:
        severity: Their severity.
        name: Their name.
        subjects: What each is about.
        number: Their number, counted as on the dashboards.
    """

    severity: str
    name: str
    subjects: tuple[str, ...]
    number: int

    @property
    def short_name(self) -> str:
        """Their name without our prefix."""
        return self.name.removeprefix(_ALERT_PREFIX)


@dataclass(frozen=True, slots=True)
class Alerts:
    """Alerts that fire now.

    Attributes:
        firing: Their labels; None where nothing is known.
        reason: The reason for which nothing is known.
    """

    firing: Sequence[Mapping[str, str]] | None = None
    reason: str = "no Prometheus was asked: give --prometheus URL"

    @classmethod
    def for_people(cls, firing: Sequence[Mapping[str, str]]) -> "Alerts":
        """The alerts for people among those that fire: no heartbeat, and none that only mutes others."""
        kept = [
            labels for labels in firing if labels.get("alertname") != HEARTBEAT and labels.get("severity") != "none"
        ]
        return cls(kept, "")


@dataclass(frozen=True, slots=True)
class News:
    """One fact that needs attention, in a sentence."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """What matters now.

    Attributes:
        title: Address of the page.
        note: Where the data come from; empty for live data.
        has_page: Whether a page was read.
        is_bridge: Whether it is a bridge's.
        error: The reason why the newest page could not be read; empty if it was.
        time_seconds: The present, Unix seconds.
        age_seconds: Age of the newest figures; None where that is not known.
        read_seconds_ago: Time since the newest page was read.
        span_seconds: Time over which rates are measured; 0 before there are two pages.
        sources: Values of the label `source`; `live` for data of this moment and place.
        gpus: By node and number.
        programs: By name.
        kernels: In the order that the user chose.
        all_kernels: Number of kernels on the page.
        predictions: Crossed limits, then predicted ones, the soonest first.
        no_prediction: The meaning of an empty list of predictions.
        hints: Open ones first.
        alerts: Alerts that fire; None where that is not known.
        alert_groups: The same by name, the most severe first.
        alerts_unknown: The reason for which alerts are not known.
        producers: (job, instance) and whether it is up.
        news: What needs attention, the worst first.
    """

    title: str
    note: str
    has_page: bool
    is_bridge: bool
    error: str
    time_seconds: float
    age_seconds: float | None
    read_seconds_ago: float
    span_seconds: float
    sources: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    programs: tuple[ProgramNow, ...]
    kernels: tuple[KernelNow, ...]
    all_kernels: int
    predictions: tuple[Prediction, ...]
    no_prediction: str
    hints: tuple[HintNow, ...]
    alerts: Sequence[Mapping[str, str]] | None
    alert_groups: tuple[AlertGroup, ...]
    alerts_unknown: str
    producers: tuple[tuple[str, str, bool], ...]
    news: tuple[News, ...] = ()

    def document(self) -> dict[str, Any]:
        """The same as JSON, with null in place of NaN and Inf."""
        document: dict[str, Any] = _without_nan(
            {
                "title": self.title,
                "time": self.time_seconds,
                "age_seconds": None if self.age_seconds is None else round(self.age_seconds, 3),
                "rate_over_seconds": round(self.span_seconds, 3),
                "sources": self.sources,
                "news": [asdict(news) for news in self.news],
                "gpus": [{"node": gpu.node, "gpu": gpu.index, **gpu.values} for gpu in self.gpus],
                "programs": [{"program": program.name, **_as_json(program)} for program in self.programs],
                "kernels": [asdict(kernel) for kernel in self.kernels],
                "predictions": [asdict(prediction) for prediction in self.predictions],
                "no_prediction": "" if self.predictions else self.no_prediction,
                "hints": [asdict(hint) for hint in self.hints],
                "alerts": None if self.alerts is None else [dict(labels) for labels in self.alerts],
                "alerts_unknown": self.alerts_unknown,
                "producers": [{"job": job, "instance": instance, "up": up} for job, instance, up in self.producers],
            }
        )
        return document


@dataclass(slots=True)
class Recent:
    """The newest pages of one server, and what was drawn from them. For one thread.

    Attributes:
        title: Address of the page.
        note: Where the data come from; empty for live data.
        history: The newest pages.
        alerts: Alerts that fire.
        error: The reason why the newest page could not be read; empty if it was.
    """

    title: str
    note: str = ""
    history: History = field(default_factory=History)
    alerts: Alerts = field(default_factory=Alerts)
    error: str = ""
    # Breaches that are shown as predicted, by subject, with the time of the page that has each.
    _predicted: dict[tuple[str, ...], tuple[float, Prediction]] = field(default_factory=dict)

    @property
    def page(self) -> ScrapedPage:
        """The newest page; an empty one before the first."""
        return self.history.page or ScrapedPage()

    def add(self, now_seconds: float, page: ScrapedPage) -> None:
        """Add a page."""
        self.history.add(now_seconds, page)
        self._predict(now_seconds)

    def picture(self, now_seconds: float, *, sort: str = SORTS[0], text: str = "") -> Picture:
        """What matters now.

        Args:
            now_seconds: The present, Unix seconds.
            sort: Order of the kernels, one of `SORTS`.
            text: Only kernels and programs with this text, and GPUs where some have it.
        """
        page, age, has_page = self.page, self.history.age_seconds(now_seconds), self.history.page is not None
        old = bool(self.error) or (age is not None and age > OLD_SECONDS)
        firing = self.alerts.firing
        programs = self.history.programs(now_seconds)
        picture = Picture(
            title=self.title,
            note=self.note,
            has_page=has_page,
            is_bridge=page.is_bridge,
            error=self.error,
            time_seconds=now_seconds,
            age_seconds=age,
            read_seconds_ago=max(0.0, now_seconds - self.history.page_seconds) if has_page else 0.0,
            span_seconds=self.history.span_seconds,
            sources=tuple(sorted(source or "live" for source in page.sources)),
            gpus=_gpus(page, text.lower()),
            programs=tuple(program for program in programs if text.lower() in program.name.lower()),
            kernels=_kernels(self.history.kernels(), sort, text.lower()),
            all_kernels=len(page.kernels),
            predictions=self._predictions(now_seconds),
            no_prediction=_no_prediction(page, has_page=has_page, old=old),
            hints=_hints(page),
            alerts=firing,
            alert_groups=_groups(firing or ()),
            alerts_unknown=self.alerts.reason if firing is None else "",
            producers=tuple((job, instance, up) for (job, instance), up in page.producers.items()),
        )
        return replace(picture, news=_news(picture))

    def _predict(self, now_seconds: float) -> None:
        """Update the breaches that are shown as predicted; one without a value stays for `OLD_SECONDS`."""
        page = self.page
        best: dict[tuple[str, ...], Prediction] = {}
        for labels, probability in page.degradations:
            known = best.get(_subject(labels))
            if known is None or probability > (known.probability or 0.0):
                best[_subject(labels)] = Prediction(labels, probability)
        left = {_subject(labels): seconds for labels, seconds in page.seconds_left}
        for subject, prediction in best.items():
            least = STILL_PREDICTED if subject in self._predicted else PREDICTED
            if (prediction.probability or 0.0) >= least:
                self._predicted[subject] = now_seconds, replace(prediction, seconds_left=left.get(subject))
            else:
                self._predicted.pop(subject, None)
        for subject, (seen_seconds, _) in list(self._predicted.items()):
            if not 0 <= now_seconds - seen_seconds <= OLD_SECONDS:
                del self._predicted[subject]

    def _predictions(self, now_seconds: float) -> tuple[Prediction, ...]:
        predictions = {subject: prediction for subject, (_, prediction) in self._predicted.items()}
        for labels, crossed in self.page.crossed:
            subject, ago = _subject(labels), max(now_seconds - crossed, 0.0)
            prediction = predictions.get(subject, Prediction(labels))
            predictions[subject] = replace(prediction, crossed_seconds_ago=ago)
        return tuple(sorted(predictions.values(), key=_urgency))


def _as_json(program: ProgramNow) -> dict[str, Any]:
    shares = {"phases": dict(program.phases), "regions": dict(program.regions)}
    return {**asdict(program), **shares, "verdict": verdict_of(program), "runs": runs(program)}


def verdict_of(program: ProgramNow) -> str:
    """What a program's time goes into, in a sentence; empty where its phases are not known."""
    slow = program.slow_rank
    if slow is not None:
        own, peers = duration(slow.own_seconds), duration(slow.peers_seconds)
        return f"rank {slow.rank} holds the others up: {own} a step outside backward, they take {peers}"
    return verdict(dict(program.phases), has_peers=program.ranks > 1)


def runs(program: ProgramNow) -> bool:
    """Whether a process of a program works: it is in a phase, or has made steps or launches since the oldest page."""
    return bool(program.now or program.steps_per_second or program.launches_per_second)


def has_ended(program: ProgramNow) -> bool:
    """Whether no process of a program is there any more; its totals stay on the page."""
    return bool(program.phases) and not runs(program) and program.steps_per_second is not None


def is_idle(program: ProgramNow) -> bool:
    """Whether a program has made no step for long; one that has ended is no longer on the page."""
    least = max(IDLE_SECONDS, IDLE_STEPS * (program.step_seconds or 0.0))
    return program.idle_seconds is not None and bool(program.now) and program.idle_seconds > least


def _news(picture: Picture) -> tuple[News, ...]:
    every_news = [
        *_news_of_data(picture),
        *(News(gpu.state[0], f"{gpu.node} GPU {gpu.index} {_gpu_words(gpu)}") for gpu in picture.gpus if gpu.state[0]),
        *_news_of_predictions(picture.predictions),
        *_news_of_alerts(picture.alert_groups),
        *_news_of_programs(picture.programs),
    ]
    return tuple(sorted(every_news, key=lambda news: news.level != "bad"))


def _news_of_alerts(groups: Sequence[AlertGroup]) -> list[News]:
    return [
        News(
            "bad" if group.severity == "critical" else "warn", f"alert {group.short_name}: {', '.join(group.subjects)}"
        )
        for group in groups
        if group.severity in _ALL_ALERTS
    ]


def _news_of_programs(programs: Sequence[ProgramNow]) -> list[News]:
    every_news = []
    for program in programs:
        sentence = verdict_of(program) if runs(program) else ""
        if is_idle(program):
            every_news.append(News("bad", f"{program.name} has made no step for {since(program.idle_seconds)}"))
        elif sentence.startswith("input-bound"):
            every_news.append(News("warn", f"{program.name} is {sentence}"))
        elif program.slow_rank is not None and sentence:
            every_news.append(News("warn", f"{program.name}: {sentence}"))
    return every_news


def _news_of_data(picture: Picture) -> list[News]:
    age = picture.age_seconds
    if picture.error:
        how_old = "no page was read" if not picture.has_page else _old_figures(picture)
        return [News("bad", f"{picture.error}; {how_old}")]
    if picture.has_page and picture.is_bridge and not picture.producers:
        return [News("bad", "no producer reports to this bridge")]
    old = [News("bad", f"the figures are {since(age)} old")] if age is not None and age > OLD_SECONDS else []
    silent = sorted(f"{job} {instance}" for job, instance, up in picture.producers if not up)
    more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
    return [*old, *([News("bad", f"silent: {', '.join(silent[:3])}{more}")] if silent else [])]


def _old_figures(picture: Picture) -> str:
    if picture.age_seconds is None:
        return f"these figures are older than {since(picture.read_seconds_ago)}"
    return f"these figures are {since(picture.age_seconds)} old"


def _gpu_words(gpu: Gpu) -> str:
    _, words = gpu.state
    if gpu.value(GPU_UP) == 0:
        return words
    temperature, limit = gpu.value(device.GPU_TEMP), gpu.value(device.SLOWDOWN_TEMP)
    if temperature is None or limit is None or not (gpu.heat or "heat" in words):
        return f"is {words}"
    return f"is {words}: {number(temperature)} of {number(limit)} °C"


def _news_of_predictions(predictions: Sequence[Prediction]) -> list[News]:
    every_news = []
    for prediction in predictions:
        crossed = prediction.crossed_seconds_ago is not None
        cause = prediction.labels.get("cause", "unknown").replace("_", " ")
        words = "is beyond its limit" if crossed else "will probably cross its limit"
        when = time_left(prediction.seconds_left, prediction.crossed_seconds_ago)
        near = prediction.seconds_left is not None and prediction.seconds_left <= NEAR_SECONDS
        text = f"{cause}, {when}: {subject_of(prediction.labels)} {words}"  # a narrow screen cuts the end
        every_news.append(News("bad" if crossed or near else "warn", text))
    return every_news


def _gpus(page: ScrapedPage, text: str) -> tuple[Gpu, ...]:
    gpus = [Gpu(node, index, values) for (node, index), values in page.gpus.items()]
    gpus.sort(key=lambda gpu: (gpu.node, len(gpu.index), gpu.index))
    matching = [gpu for gpu in gpus if text in f"{gpu.node} {gpu.index}".lower()]
    return tuple(matching or gpus)


def _kernels(kernels: Sequence[KernelNow], sort: str, text: str) -> tuple[KernelNow, ...]:
    orders: dict[str, Any] = {
        "time": lambda kernel: (-(kernel.busy_ratio or 0.0), -(kernel.launches * (kernel.before_seconds or 0.0))),
        "change": lambda kernel: -(kernel.change_ratio or 0.0),
        "launches": lambda kernel: -(kernel.launches_per_second or 0.0),
        "mean": lambda kernel: -(kernel.mean_seconds or kernel.before_seconds or 0.0),
        "name": lambda kernel: kernel.name,
    }
    matching = [
        kernel
        for kernel in kernels
        if text in kernel.name.lower() or any(text in program.lower() for program in kernel.programs)
    ]
    return tuple(sorted(matching, key=orders[sort]))


def _groups(firing: Sequence[Mapping[str, str]]) -> tuple[AlertGroup, ...]:
    groups: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for labels in firing:
        groups.setdefault((labels.get("severity", ""), labels.get("alertname", "?")), []).append(labels)
    names = sorted(groups, key=lambda key: (_ALL_ALERTS.get(key[0], len(_ALL_ALERTS)), key[1]))
    return tuple(
        AlertGroup(
            severity,
            name,
            tuple(sorted({source_of(labels) for labels in groups[severity, name]})),
            len({tuple(labels.get(label, "") for label in _ALERT_SUBJECT) for labels in groups[severity, name]}),
        )
        for severity, name in names
    )


def _no_prediction(page: ScrapedPage, *, has_page: bool, old: bool) -> str:
    """The meaning of an empty list: only a predictor that reports now can say that nothing is coming."""
    if not has_page:
        return "not known yet: no page was read"
    if not page.is_bridge:
        return "not known here: predictions are on a bridge's page (port 19401)"
    if old:
        return "not known: the figures are old"
    if not page.predictor_is_up:
        return "not known: no predictor reports to this bridge"
    if not page.judged:
        return "not known yet: the predictor reports, and no series has enough history so far"
    return f"nothing predicted for {page.judged} series with a limit"


def _hints(page: ScrapedPage) -> tuple[HintNow, ...]:
    """Open hints with the expected time, then the others with their last state and the time that was measured."""
    open_labels = {(labels.get("program", ""), labels.get("tunable", "")): labels for labels in page.open_hints}
    hints = []
    for key in sorted({*open_labels, *page.hints, *(outcome[:2] for outcome in page.outcomes)}):
        labels = open_labels.get(key, {})
        answers = (state for state in _ANSWERS if page.outcomes.get((*key, state)))
        hints.append(
            HintNow(
                *key,
                state=labels.get("state") or next(answers, "open"),
                previous=labels.get("previous", ""),
                proposed=labels.get("value", ""),
                value=page.tunables.get(key, ""),
                expected_ratio=page.expected_ratios.get(labels.get("hint_id", "")),
                measured_ratio=None if labels else page.ratios.get(key),
                issued=page.hints.get(key, 0.0),
            )
        )
    return tuple(sorted(hints, key=lambda hint: not hint.proposed))


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nan(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _urgency(prediction: Prediction) -> tuple[bool, bool, float, bool]:
    return (
        prediction.crossed_seconds_ago is None,
        prediction.seconds_left is None,
        prediction.seconds_left or 0.0,
        "kernel" in prediction.labels,
    )


def _subject(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("Hostname", "gpu", "program", "kernel", "metric", "cause"))
