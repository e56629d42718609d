"""The mode paillier: the server adds what it cannot read; with `--dp` clients add Skellam noise before they encrypt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tacit.config.agreement import agreement
from tacit.config.resolved import Resolved
from tacit.federated.plan import Claim, Plan, Sampler
from tacit.mechanisms.fixed_point import BoundedMean
from tacit.mechanisms.skellam import SkellamMechanism
from tacit.modes import images
from tacit.modes.keys import holder_numbers, key_notes
from tacit.modes.mode import Mode
from tacit.modes.parts import (
    BUDGET,
    joined,
    limit,
    minimum_clients,
    refuse_weights,
    sampler_of,
)
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
from tacit.protocols.protocol import SumProtocol

if TYPE_CHECKING:
    from tacit.crypto.paillier import Layout

_SEES = "ciphertexts, and sums that already hold the clients' noise"
_WHERE = "under encryption"


def plan(config: Resolved, clients: int) -> Plan:
    """Return the plan of the encrypted sum, of bounded means or of updates under the clients' own noise."""
    sampler = sampler_of(config, clients)
    minimum = smallest_cohort(config, sampler, minimum_clients(config, sampler), noisy=config.paillier.dp)
    if not config.paillier.dp:
        mean = _mean_of(config)
        return joined(config, sampler, mean, protocol=_protocol_of(config, mean, sampler, clients, minimum))
    refuse_weights(config)
    colluding = config.paillier.colluding
    mechanism = noise_of(config, sampler, minimum=minimum, colluding=colluding, where=_WHERE)
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
    return config, weighted(plan, sizes, config.paillier.weight_cap)


def _mean_of(config: Resolved) -> BoundedMean:
    """Return the weighted mean without noise."""
    from tacit.crypto.paillier import Layout

    bits, clip = config.paillier.value_bits, config.paillier.clip
    rounding = Layout.floats(length=1, clip=clip, bits=bits, summands=1, key_bits=config.paillier.bits).error(1)
    return mean_of(config, clip=clip, weight_cap=config.paillier.weight_cap, rounding=rounding)


def _claim_of(config: Resolved, mechanism: SkellamMechanism) -> Claim:
    """Return what the run promises, and what is left of it where server and key holders break their rules together."""
    settings, left = config.paillier, epsilon_alone(config, mechanism)
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
        neighbours=relation(config),
        against="the server, the key holders, and everyone who sees opened sums or models",
        max_epsilon=limit(config),
        notes=(
            "Every sum that is opened already has its noise: clients add it before they encrypt.",
            f"It holds while one sum of at least {mechanism.smallest_cohort} clients is opened in a round, as "
            f"ciphertexts are bound to it: {who} can break that rule, and then meet a client's own share of the noise "
            f"only, epsilon {left:.3g}.",
            f"It holds while {_tellers(settings.colluding)} in a round{more}. Clients that a server invents "
            "count among them: key holders with a list of the true ones (tacit-clients) admit nobody else.",
            CHARGED,
        ),
    )


def _protocol_of(
    config: Resolved, mechanism: BoundedMean | SkellamMechanism, sampler: Sampler, clients: int, minimum: int
) -> SumProtocol:
    """Return the encrypted sum, with room for the largest cohort."""
    from tacit.protocols.paillier import PaillierSum

    settings = config.paillier
    holders, needed = holder_numbers(settings)
    largest = largest_cohort(sampler, clients, instead="no key holder opens it")
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
        settings=agreement(config, clients),
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
    advice=f"By itself it adds no noise: leave it out, or add --dp (paillier.dp=true) for "
    f"differential privacy {_WHERE}, which {FIXED}.",
    adds_noise=True,
    noise_if="paillier.dp",
    budget=("dp",),
    encrypted=True,
    hidden="encrypted",
    fitted=fitted,
    notes=lambda config: key_notes(config.paillier),
    replayed={  # a sum is the same whatever the key, and short ones are soon made
        "paillier.bits": 512,
        "paillier.insecure_key_size": True,
        "paillier.key": None,
        "paillier.keys": "authority",
        "paillier.fingerprint": None,
    },
)
