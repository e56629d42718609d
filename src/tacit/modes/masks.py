"""The mode masks: updates hidden by masks that cancel in the sum; nobody holds a key, and drop-outs are survived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tacit.config.agreement import agreement
from tacit.config.resolved import Resolved
from tacit.federated.plan import Claim, Plan, Sampler
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes import images
from tacit.modes.mode import Mode
from tacit.modes.parts import BUDGET, joined, limit, minimum_clients, refuse_weights, sampler_of
from tacit.modes.summed import (
    CHARGED,
    FIXED,
    epsilon_alone,
    largest_cohort,
    mean_of,
    noise_of,
    relation,
    smallest_cohort,
    weighted,
)

if TYPE_CHECKING:
    from tacit.protocols.masks import Field, MaskedSum

_SUM_BITS, _VALUE_BITS = 32, 24  # a sum that fits a machine word is added twice as fast
_WHERE = "under masks"


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan of the masked sum, of bounded means or of updates under the clients' own noise."""
    sampler = sampler_of(config, clients)
    minimum = smallest_cohort(config, sampler, minimum_clients(config, sampler), noisy=config.masks.dp)
    largest = largest_cohort(sampler, clients, instead="no mask hides it")
    if not config.masks.dp:
        inside = _fixed_point(config, largest)
        rounding = inside.error
        mean = mean_of(config, clip=config.masks.clip, weight_cap=config.masks.weight_cap, rounding=rounding)
        return joined(config, sampler, mean, protocol=_protocol_of(config, sampler, clients, minimum, lambda _: inside))
    refuse_weights(config)
    rules = _protocol_of(config, sampler, clients, minimum, lambda _: _fixed_point(config, largest))
    corrupted = rules.hood(rules.expected).corrupted
    mechanism = noise_of(config, sampler, minimum=rules.minimum_clients, colluding=corrupted, where=_WHERE)
    protocol = _protocol_of(config, sampler, clients, minimum, _integers(mechanism, largest))
    return joined(
        config,
        sampler,
        mechanism,
        claim=_claim_of(config, mechanism, protocol),
        server_sees=f"{protocol.guarantee.server}; every sum already holds the clients' noise",
        protocol=protocol,
    )


def fitted(config: Resolved, plan: Plan, sizes: Sequence[int]) -> tuple[Resolved, Plan]:
    """Return the plan with weights by the largest client, where no public number was given."""
    return config, weighted(plan, sizes, config.masks.weight_cap)


def _protocol_of(
    config: Resolved, sampler: Sampler, clients: int, minimum: int, fields: Callable[[int], Field]
) -> MaskedSum:
    """Return the masked sum; where lists are signed it needs more than half of a cohort."""
    from tacit.protocols.masks import MaskedSum

    made = MaskedSum(
        minimum_clients=max(minimum, 2),
        rounds=config.federate.rounds,
        fields=fields,
        expected=max(round(sampler.expected), minimum, 2),
        corrupted=config.masks.corrupted,
        signed=bool(config.masks.signed),
        settings=agreement(config, clients),
    )
    return made.with_quorum()


def _fixed_point(config: Resolved, summands: int) -> Field:
    from tacit.protocols.masks import Field

    bits = config.masks.value_bits or min(_VALUE_BITS, _SUM_BITS - (summands - 1).bit_length())
    return Field.floats(clip=config.masks.clip, bits=max(bits, 8), summands=summands)


def _integers(mechanism: SkellamMechanism, summands: int) -> Callable[[int], Field]:
    from tacit.protocols.masks import Field

    return lambda length: Field(bound=mechanism.fitted((length,)).bound, summands=summands)


def _claim_of(config: Resolved, mechanism: SkellamMechanism, protocol: MaskedSum) -> Claim:
    """Return what the run promises, and what is left of it where more clients side with the server."""
    hood = protocol.hood(protocol.expected)
    left = epsilon_alone(config, mechanism)
    lies = (
        "It holds against a server that lies, as clients sign whose vectors are in a sum"
        if protocol.signed
        else "It holds against a server that keeps to the protocol; masks.signed=true adds one that lies"
    )
    return Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours=relation(config),
        against="the server, other clients, and everyone who sees sums or models",
        max_epsilon=limit(config),
        notes=(
            "Every sum that is opened already has its noise: clients add it before they mask.",
            f"The noise is sized for sums of {mechanism.smallest_cohort} clients, of which {mechanism.colluding} may "
            f"tell the server theirs (masks.corrupted={config.masks.corrupted:g}). Drop-outs' noise is not counted on.",
            f"{lies}. Where {hood.threshold} or more of a client's {hood.neighbours} neighbours side with the server, "
            f"they meet its own share of the noise only, epsilon {left:.3g}. Clients that a server invents count among "
            "them: clients with a list of the true ones (tacit-clients) refuse others.",
            CHARGED,
        ),
    )


MASKS = Mode(
    name="masks",
    summary="updates hidden by masks that cancel in the sum; no key holder, drop-outs survived",
    plan=plan,
    images=images.DP,
    section="masks",
    dp=BUDGET | {"neighbours"},
    advice=f"By itself it adds no noise: leave it out, or add --dp (masks.dp=true) for differential privacy {_WHERE}, "
    f"which {FIXED}.",
    adds_noise=True,
    noise_if="masks.dp",
    budget=("dp",),
    hidden="masked",
    defaults=lambda config: {"masks.signed": config.engine == "flower"},
    fitted=fitted,
)
