"""Episodes of one series: the rules of `anomalies.episodes` on scalars."""

import numpy as np

from kernelcast.predictor.anomalies.episodes import BELOW_ALARM, NEVER
from kernelcast.predictor.anomalies.settings import AnomalySettings


class SingleEpisodes:
    """Begin, duration and end of the present episode."""

    def __init__(self, settings: AnomalySettings) -> None:
        self._settings = settings
        self._notice = np.float32(settings.notice)
        self.age = 0
        self.off = self._acute = False
        self._calm = 0
        self._since_notice = self._since_alarm = int(NEVER)

    def frozen(self) -> int:
        """1 inside an episode until its state is adopted as normal, else 0."""
        return int(0 < self.age < self._settings.adoption)

    def step(
        self, every: np.float32, new: np.float32, alarming: tuple[np.float32, np.float32]
    ) -> tuple[np.float32, np.float32]:
        """Take the scores of one row, and return the published score and the onset."""
        settings, inside = self._settings, self.age > 0
        is_opening = not inside and bool(new >= self._notice)
        bar = settings.notice if self.age >= settings.adoption else settings.hysteresis
        self.off = is_opening or (inside and float(every) >= bar)
        self._calm = 0 if self.off else self._calm + 1
        continues = is_opening or (inside and self._calm < settings.calm)
        self.age = self.age + 1 if continues else 0
        alarm = continues and not self._acute and bool(alarming[0 if inside else 1] >= 1)
        self._acute = continues and (self._acute or alarm)
        published = every if continues else new
        published = published if self._acute else min(published, BELOW_ALARM)
        onset = self._onset(published, is_opening=is_opening and not alarm, alarm=alarm)
        return max(published, np.float32(1)) if self._acute and self.off else published, onset

    def _onset(self, score: np.float32, *, is_opening: bool, alarm: bool) -> np.float32:
        refractory = self._settings.refractory
        alarms_now = alarm and self._since_alarm >= refractory
        reported = alarms_now or (is_opening and min(self._since_notice, self._since_alarm) >= refractory)
        self._since_notice = 0 if reported else self._since_notice + 1
        self._since_alarm = 0 if alarms_now else self._since_alarm + 1
        return score if reported else np.float32(0)
