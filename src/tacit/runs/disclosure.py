"""What is told of a round: all of it, or only what was planned where epsilon does not cover more.

In mode dp the noise hides who is in a sum. The true size of a cohort, who replied, the bytes they sent and, where
sampling amplifies, the seconds it took would tell it all the same. So what is printed, stored, logged or sent is the
expected cohort and its bytes, which are settings, and seconds of the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit import wire
from tacit.federated.plan import Plan, Poisson
from tacit.flow import ClientId, Stage, Traffic
from tacit.mechanisms.mechanism import Mechanism
from tacit.runs import remarks


@dataclass(frozen=True, kw_only=True)
class Disclosure:
    """The rule of a plan, for everything that leaves the server."""

    plan: Plan

    @property
    def sizes(self) -> bool:
        """Whether true sizes may be told, and who was asked and replied."""
        return not self.plan.cohorts_hidden

    @property
    def seconds_by_round(self) -> bool:
        """Whether the seconds of a single round may be told: not where they grow with a hidden size."""
        return self.sizes or self.plan.claim is None or not self.plan.claim.amplified

    def asked(self, cohort: Sequence[ClientId], *, clients: int) -> dict[str, Any]:
        """Return what the journal says of whom an attempt asks."""
        if not self.sizes:
            return {}
        return {"clients": len(cohort), "asked": "all" if len(cohort) == clients else list(cohort)}

    def dropped(self, cohort: Sequence[ClientId], replied: Sequence[ClientId]) -> dict[str, Any]:
        """Return what the journal says of who did not reply."""
        return {"dropped": sorted(set(cohort) - set(replied))} if self.sizes else {}

    def clients(self, cohort: Sequence[ClientId], replied: Sequence[ClientId]) -> dict[str, Any]:
        """Return a round's sizes for its record."""
        varies = isinstance(self.plan.sampler, Poisson)  # elsewhere how many are asked is a setting
        return {
            "clients_expected": self.plan.sampler.expected,
            "clients_asked": len(cohort) if self.sizes or not varies else None,
            "clients_replied": len(replied) if self.sizes else None,
        }

    def traffic(self, counted: Traffic, mechanism: Mechanism, parameters: int) -> dict[str, Any]:
        """Return a round's bytes for its record: what was counted, or what the expected cohort would send."""
        up, down = counted.bytes_up, counted.bytes_down
        if not self.sizes:
            expected = self.plan.sampler.expected
            up = round(expected * wire.vector_bytes(mechanism.length(parameters)))
            down = round(expected * wire.task_bytes(parameters, extras=len(mechanism.public_state())))
        return {"bytes_up": up, "bytes_down": down, "bytes_holders": counted.bytes_holders}

    def time(self, stages: Mapping[Stage, float], wall: float) -> dict[str, Any]:
        """Return a round's seconds for its record."""
        if not self.seconds_by_round:
            return {"seconds": {}, "wall_seconds": None}
        return {
            "seconds": {stage: round(seconds, 6) for stage, seconds in stages.items()},
            "wall_seconds": round(wall, 6),
        }

    def training_score(self, asked: bool | None) -> bool:
        """Return whether the model is scored on the clients' own data: by default where no privacy is claimed."""
        return not self.plan.private if asked is None else asked

    def notes(self, *, training_score: bool) -> tuple[str, ...]:
        """Return what a result has to say of its own numbers."""
        if not self.plan.private:
            return ()
        said = [remarks.ON_SECONDS]
        if not self.sizes:
            said.append(remarks.ON_COHORTS)
        if training_score:
            said.append(remarks.ON_TRAINING)
        return tuple(said)
