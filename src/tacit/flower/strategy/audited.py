"""What a protected app of Flower's claims, attacked: its plan, account and session, with clients that are made up.

The session is the strategy's own: it charges, asks, sums and releases as :class:`tacit.flower.Private` does, whichever
strategy is wrapped. Flower's messages and the wrapped strategy's step come after the noise and are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tacit.accounting.evidence import Claimed
from tacit.accounting.ledger import Ledger
from tacit.audit.event import Rows
from tacit.audit.replay import RELEASES, looks
from tacit.audit.subject import Pair, Subject
from tacit.audit.worlds import LAYERS, Attack, MadeUp, attacks
from tacit.federated.plan import Plan
from tacit.federated.round import LocalClients
from tacit.flow import Frames
from tacit.flower.strategy import settings
from tacit.flower.strategy.arrays import Shape
from tacit.flower.strategy.session import Exchange, Session
from tacit.parties.hello import Numbers
from tacit.randomness import Randomness
from tacit.vectors import Vector

CLIENTS = 3
NOISE = 1.0  # of an app whose server adds it, where nothing else is said
_ROUNDS = 2**31


def subject(*, seed: int | None, mode: str = "dp", noise: float = NOISE, per_round: int = CLIENTS) -> Subject:
    """Return what there is to audit of ``Private(strategy, mode=..., dp={"noise": ...})`` with a few clients."""
    config = settings.given(mode=mode, sections={"dp": {"noise": noise}})
    numbers = Numbers(clients=CLIENTS, per_round=per_round, rounds=_ROUNDS)
    plan = settings.plan(settings.to_text(config), numbers)
    claim, event = plan.claim, plan.mechanism.event
    assert claim is not None
    assert event is not None
    ledger = Ledger(unit=claim.unit, neighbours=claim.neighbours)
    for number in range(RELEASES):
        ledger = ledger.charged(claim.event(event), round_number=number + 1)
    claimed = Claimed(ledger=ledger, delta=claim.delta)
    randomness = Randomness.of(seed=seed)
    pairs = []
    for attack in attacks(RELEASES):
        if attack.share_lost:
            continue  # a round that is lost is not asked for again
        first, second = (
            _world(
                plan, attack, attack.world(claim.neighbours, first=there), randomness.within(attack.name, int(there))
            )
            for there in (True, False)
        )
        pairs.append(Pair(name=attack.name, claimed=claimed, worlds=(first, second)))
    return Subject(name=f"Flower's Private, {mode}", pairs=pairs, against=claim.against, releases=RELEASES)


def _world(
    plan: Plan, attack: Attack, canary: tuple[Vector, ...] | None, randomness: Randomness
) -> Callable[[int], Rows]:
    """Return what plays trials of a session in one of two worlds."""
    cohort = range(round(plan.sampler.expected))
    who = cohort[-1]
    seed = randomness.number("session") if randomness.simulation else None
    config = settings.from_text(settings.to_text(settings.given(mode=plan.mode, sections={"dp": {"noise": NOISE}})))
    config = config.model_copy(update={"seed": seed})
    shape = Shape(arrays=tuple((f"layer {number}", (size,), "float32") for number, size in enumerate(LAYERS)))
    session = Session(
        plan=plan,
        config=config,
        rounds=_ROUNDS,
        shape=shape,
        cohort=cohort,
        engine=Exchange(exchange=lambda frames: frames),  # a plain sum asks once, and that is answered below
    )
    trainer = MadeUp(who=who, canary=canary or (), others=attack.others)
    clients = LocalClients(plan=plan, trainer=trainer, examples=[1] * len(cohort), randomness=randomness)
    played = 0

    def there(requests: Frames) -> Frames:
        return {client: request for client, request in requests.items() if canary is not None or client != who}

    def play(trials: int) -> Rows:
        nonlocal played
        rows = []
        for _ in range(trials):
            seen: list[float] = []
            trainer.first_round = played + 1
            for _ in range(RELEASES):
                played += 1
                requests = session.ask(cohort, played)
                _, release = session.release(clients.answer(there(requests)))
                seen += looks(release.update.astype(np.float64))
            rows.append(seen)
        return np.array(rows)

    return play
