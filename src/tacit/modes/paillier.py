"""The mode paillier: the server adds what it cannot read; with `--dp` clients add Skellam noise before they encrypt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.accounting import accountant
from tacit.accounting.calibration import calibrate_skellam
from tacit.accounting.events import RepeatedEvent
from tacit.accounting.ledger import Ledger, Neighbours
from tacit.config.resolved import Resolved
from tacit.errors import ConfigError
from tacit.federated.plan import Claim, Plan, Sampler
from tacit.mechanisms.fixed_point import BoundedMean
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes import images
from tacit.modes.keys import holder_numbers, key_notes
from tacit.modes.mode import Mode
from tacit.modes.parts import (
    BUDGET,
    clip_bound,
    joined,
    limit,
    minimum_clients,
    refuse_weights,
    sampler_of,
)
from tacit.protocols.protocol import SumProtocol

if TYPE_CHECKING:
    from tacit.crypto.paillier import Layout

_SEES = "ciphertexts, and sums that already hold the clients' noise"
_WEIGHT_CAP = 10_000  # examples that weigh 1 where nobody sees how many the largest client has
_RELATION: Neighbours = "zero-out"
_FIXED = "differential privacy under encryption, which has a fixed clip bound for the whole update and no weights."


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan of the encrypted sum, of bounded means or of updates under the clients' own noise."""
    sampler = sampler_of(config, clients)
    minimum = _smallest_cohort(config, sampler, minimum_clients(config, sampler))
    if not config.paillier.dp:
        mean = _mean_of(config)
        return joined(config, sampler, mean, protocol=_protocol_of(config, mean, sampler, clients, minimum))
    refuse_weights(config)
    mechanism = _noise_of(config, sampler, minimum)
    return joined(
        config,
        sampler,
        mechanism,
        claim=_claim_of(config, mechanism),
        server_sees=_SEES,
        protocol=_protocol_of(config, mechanism, sampler, clients, minimum),
    )


def fitted(config: Resolved, plan: Plan, sizes: Sequence[int]) -> tuple[Resolved, Plan]:
    """Return the plan with weights by the largest client, where no public number was given."""
    if isinstance(plan.mechanism, BoundedMean) and config.paillier.weight_cap is None:
        plan = replace(plan, mechanism=replace(plan.mechanism, weight_cap=max(sizes)))
    return config, plan


def _mean_of(config: Resolved) -> BoundedMean:
    """Return the weighted mean without noise."""
    from tacit.crypto.paillier import Layout

    bits, clip = config.paillier.value_bits, config.paillier.clip
    return BoundedMean(
        clip=clip,
        weighting=config.federate.weighting or "examples",
        weight_cap=config.paillier.weight_cap or _WEIGHT_CAP,
        rounding=Layout.floats(length=1, clip=clip, bits=bits, summands=1, key_bits=config.paillier.bits).error(1),
    )


def _noise_of(config: Resolved, sampler: Sampler, minimum: int) -> SkellamMechanism:
    """Return the clients' noise, sized for the smallest cohort whose sum may be opened."""
    dp = config.dp
    if dp.clip == "adaptive":
        raise ConfigError(f"dp.clip=adaptive is not for {_FIXED} Leave it out, or set dp.clip to a number.")
    if (dp.noise is None) == (dp.epsilon is None):
        given = "neither" if dp.noise is None else "both"
        raise ConfigError(
            "Differential privacy under encryption needs dp.noise (--sigma) or dp.epsilon (--epsilon), one of them; "
            f"{given} was given."
        )
    mechanism = SkellamMechanism(
        clip_bound=clip_bound(config),
        noise_multiplier=dp.noise or 0.0,
        smallest_cohort=minimum,
        colluding=config.paillier.colluding,
        expected_clients=sampler.expected,
    )
    if dp.epsilon is None:
        return mechanism
    calibrated = calibrate_skellam(
        epsilon=dp.epsilon,
        delta=dp.delta,
        rounds=config.federate.rounds,
        sensitivity=mechanism.rounding.norm,
        neighbours=_relation(config),
    )
    return replace(mechanism, noise_multiplier=calibrated.noise_multiplier)


def _claim_of(config: Resolved, mechanism: SkellamMechanism) -> Claim:
    """Return what the run promises, and what is left of it where server and key holders break their rules together."""
    settings, rounds = config.paillier, config.federate.rounds
    single = Ledger(unit="client", neighbours="replace-one").charged(
        RepeatedEvent(event=mechanism.alone, count=rounds), round_number=rounds
    )
    left = accountant.epsilon(single, config.dp.delta).epsilon
    holders, needed = holder_numbers(settings)
    who = {
        "authority": "a server and the key authority together",
        "threshold": f"a server and {2 * needed - len(holders)} of {len(holders)} key holders together",
        "shared": "a server that lies to any one client, as all have the key,",
    }[settings.keys]
    more = "" if settings.colluding else " (paillier.colluding allows for more)"
    return Claim(
        delta=config.dp.delta,
        unit="client",
        neighbours=_relation(config),
        against="the server, the key holders, and everyone who sees opened sums or models",
        max_epsilon=limit(config),
        notes=(
            "Every sum that is opened already has its noise: clients add it before they encrypt.",
            f"It holds while one sum of at least {mechanism.smallest_cohort} clients is opened in a round, as "
            f"ciphertexts are bound to it: {who} can break that rule, and then meet a client's own share of the noise "
            f"only, epsilon {left:.3g}.",
            f"It holds while {_tellers(settings.colluding)} in a round{more}. Clients that a server invents "
            "count among them: key holders with a list of the true ones (tacit-clients) admit nobody else.",
            "A client is charged for every round: no amplification by sampling is claimed, and who takes part is not "
            "hidden, only what it contributed: a client that stays away takes its share of the noise along, which can "
            "be seen.",
        ),
    )


def _relation(config: Resolved) -> Neighbours:
    """Return the neighbouring relation of noise that the clients themselves bring: any but add-remove."""
    if config.dp.neighbours == "add-remove":
        raise ConfigError(
            "dp.neighbours=add-remove does not hold for noise that the clients add: a client that is absent takes its "
            "share of the noise with it, and the variance of the sum tells so. Use zero-out (the default) or "
            "replace-one, or --mode dp, where the server adds the noise."
        )
    return config.dp.neighbours or _RELATION


def _smallest_cohort(config: Resolved, sampler: Sampler, usual: int) -> int:
    """Return how many clients a sum needs: with noise nine tenths of the cohort, as fewer would each need more."""
    if not config.paillier.dp or config.federate.minimum_clients is not None:
        return usual
    return max(usual, -(-9 * round(sampler.expected) // 10))


def _protocol_of(
    config: Resolved, mechanism: BoundedMean | SkellamMechanism, sampler: Sampler, clients: int, minimum: int
) -> SumProtocol:
    """Return the encrypted sum, with room for the largest cohort."""
    from tacit.protocols.paillier import PaillierSum

    settings = config.paillier
    holders, needed = holder_numbers(settings)
    largest = min(clients, round(sampler.expected + 12 * sampler.expected**0.5))  # more is a Poisson draw nobody sees
    if largest < 2:
        raise ConfigError(
            "A round has one client, and the sum of one is that client's update: no key holder opens it. Let at least "
            "two take part (federate.clients, federate.per_round), or use --mode plain or local-dp."
        )
    return PaillierSum(
        minimum_clients=minimum,
        rounds=config.federate.rounds,
        layout=_layout(config, mechanism, largest),
        keys=settings.keys,
        holders=holders,
        needed=needed,
        fingerprint=settings.fingerprint,
        insecure_key_size=settings.insecure_key_size,
        prove=settings.prove,
    )


def _layout(config: Resolved, mechanism: BoundedMean | SkellamMechanism, summands: int) -> Callable[[int, int], Layout]:
    from tacit.crypto.paillier import Layout

    def floats(length: int, key_bits: int) -> Layout:
        bits, clip = config.paillier.value_bits, config.paillier.clip
        return Layout.floats(length=length, clip=clip, bits=bits, summands=summands, key_bits=key_bits)

    def integers(length: int, key_bits: int) -> Layout:
        assert isinstance(mechanism, SkellamMechanism)
        bound = mechanism.fitted((length,)).bound
        return Layout(length=length, bound=bound, summands=summands, key_bits=key_bits)

    return integers if isinstance(mechanism, SkellamMechanism) else floats


def _tellers(colluding: int) -> str:
    """Return how many clients may pass the noise they added to the adversary."""
    if colluding == 0:
        return "no client tells the adversary its noise"
    return f"at most {colluding} {'client tells' if colluding == 1 else 'clients tell'} the adversary their noise"


PAILLIER = Mode(
    name="paillier",
    summary="clients encrypt, and the server adds what it cannot read",
    plan=plan,
    images=images.ENCRYPTED,
    section="paillier",
    dp=BUDGET | {"neighbours"},
    advice=f"By itself it adds no noise: leave it out, or add --dp (paillier.dp=true) for {_FIXED}",
    adds_noise=True,
    noise_if="paillier.dp",
    budget=("dp",),
    encrypted=True,
    fitted=fitted,
    notes=lambda config: key_notes(config.paillier),
)
