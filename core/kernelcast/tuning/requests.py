"""Values between a campaign and its caller: requests, answers, verdicts, and the campaign's limits."""

from dataclasses import dataclass, field, replace

from kernelcast.tuning.experiment import Decision, Rules


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
        few: Candidates up to which a space is not searched: an experiment compares each.
        patience: Launches in which one of these may settle, in a second experiment, if it was slow in a first one.
        proof_launches: Most launches of one experiment.
        usual_proof: Usual launches of one, of both arms: some 350 where the candidate is 30 % faster, 600 where it is
            useless, 1,200 where it is 5 % faster; of epochs 56, 370 and 500.
        experiment: Limits of an experiment.
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
    few: int = 3
    patience: int = 24
    proof_launches: int = 6000
    usual_proof: int = 700
    experiment: Rules = field(default_factory=Rules)
    launches: int = 15_000
    minimum_gain: float = 0.01

    def declared(
        self, worst: float | None, settle: int | None, run_seconds: float | None, objective: str
    ) -> "CampaignRules":
        """Return the limits with what a program declares, as of `Rules.declared`.

        Raises:
            TunableError: A value cannot be used.
        """
        experiment = self.experiment.declared(worst, settle, run_seconds, objective)
        more = max(0, experiment.most_launches - self.proof_launches)
        return replace(
            self,
            experiment=experiment,
            proof_launches=self.proof_launches + more,
            launches=self.launches + self.proofs * more,
        )

    def by_epoch(self) -> "CampaignRules":
        """Return the limits for launches that are epochs, of which a program has few."""
        return replace(
            self,
            experiment=self.experiment.by_epoch(),
            repeats=1,
            finalists=4,
            final_rounds=3,
            few=1,
            patience=2,
            usual_proof=60,
        )


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A configuration to run, and the number of launches in a row; `may_wait`: it need not follow the one before."""

    ordinal: int
    launches: int
    may_wait: bool = True


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
