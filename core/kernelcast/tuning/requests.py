"""Values between a campaign and its caller: requests, answers, verdicts, and the campaign's limits."""

from dataclasses import dataclass

from kernelcast.tuning.experiment import Decision


@dataclass(frozen=True, slots=True)
class CampaignRules:
    """Limits of a campaign.

    Attributes:
        drop_ratio: A candidate this many times as slow as the best is dropped after one launch.
        repeat_ratio: A candidate this close to the best after its first launch gets more.
        repeats: Launches of such a candidate after its first.
        reference_every: Configurations between two visits of the kept one, which show drift.
        finalists: Most configurations that are compared at the end.
        final_share: Finalists are within this share of the best.
        final_rounds: Most launches of a finalist in this comparison.
        proofs: Most experiments.
        proof_launches: Most launches of one experiment.
        resumed: Most results of an earlier campaign that are measured again.
        launches: Most launches in all for a budget of up to 200 configurations, in proportion above; no experiment
            begins that could exceed it.
        minimum_gain: Smallest gain worth keeping.
    """

    drop_ratio: float = 2.0
    repeat_ratio: float = 1.25
    repeats: int = 2
    reference_every: int = 10
    finalists: int = 10
    final_share: float = 0.15
    final_rounds: int = 20
    proofs: int = 2
    proof_launches: int = 520
    resumed: int = 5
    launches: int = 1500
    minimum_gain: float = 0.01


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A configuration to run, and the number of launches in a row."""

    ordinal: int
    launches: int


@dataclass(frozen=True, slots=True)
class Proved:
    """A verdict with the ordinals of the candidate and of the kept configuration (`against`) that it compares."""

    ordinal: int
    against: int
    decision: Decision
    reason: str
    ratio: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class LaunchAnswer:
    """The result of a request: times of its launches, or the reason for which it failed or was not run."""

    times: tuple[float, ...] = ()
    failed: str = ""
    refused: str = ""
