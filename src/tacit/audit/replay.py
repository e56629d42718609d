"""A run's own plan, sampler, mechanism, protocol and rounds, played again and again with a trainer that is made up.

What is played is what runs: the plan is the mode's, rounds are the runner's with their retries and what it tells of a
round, clients and key holders are those of a run in one process, and the claim is what the account would charge. Only
three things differ. The trainer returns worst cases (:mod:`tacit.audit.worlds`). The federation is as small as the mode
allows at the run's own sampling rate: others only add noise of their own, so fewer of them hide less. Rounds are
numbered on and on, as no key holder opens a round twice.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tacit.accounting.evidence import Claimed
from tacit.accounting.ledger import Ledger
from tacit.audit.event import Rows
from tacit.audit.subject import Pair, Subject
from tacit.audit.worlds import LAYERS, SIZE, Attack, MadeUp, attacks, direction, layer
from tacit.config.resolved import Resolved
from tacit.config.sections import Audit
from tacit.errors import ConfigError, DropoutError, RunError, SpoiledError
from tacit.federated.plan import Claim, Plan
from tacit.federated.round import Unreliable
from tacit.flow import ClientId, Engine, Frames, InProcessEngine, Stopwatch, drive, only
from tacit.modes.catalogue import mode_of, plan_of
from tacit.randomness import Randomness
from tacit.runs.connection import InProcess, Watch
from tacit.runs.folder import Checkpoint
from tacit.runs.job import Job
from tacit.runs.observer import Silent
from tacit.runs.runner import Runner
from tacit.vectors import Vector

RELEASES = 2  # of a trial: noise that is used twice shows in two
_MANY = 2**40  # rounds, more than are ever played
_SEVERAL = 5  # clients of a larger cohort
_FEW = 6  # clients at the most that a mode may need for a round
_EXAMPLES = 1000  # that a client is said to hold


class _Notes(Silent):
    """Counts what the operator is told while a round runs."""

    def __init__(self) -> None:
        self.heard = 0

    def note(self, text: str) -> None:
        """Count it."""
        del text
        self.heard += 1

    def progress(self, *, replied: int, asked: int) -> None:
        """Count it."""
        del replied, asked
        self.heard += 1


class _Rounds(Runner):
    """The runner of a run, of which trials are asked in place of a run; what they cost is known beforehand."""

    def __init__(self, *, job: Job, randomness: Randomness, notes: _Notes) -> None:
        super().__init__(job=job, connection=cast("Any", None), randomness=randomness, folder=None, observer=notes)
        self._notes = notes

    def prepare(self, engine: Engine, clients: range) -> None:
        """Let the parties make ready, as before the first round."""
        self._plan = replace(self._job.plan, protocol=drive(self._job.plan.protocol.setup(clients), engine))

    def trial(self, engine: Engine, number: int, releases: int) -> list[float]:
        """Run the rounds of a trial from the model zero, and return all that is told of them."""
        checkpoint = Checkpoint(
            round_number=number - 1,
            model=np.zeros(SIZE, np.float32),
            state=self._first_state(SIZE),
            mechanism=self._job.plan.mechanism.public_state(),
            seconds={},
            record=None,
        )
        self._mechanism = self._job.plan.mechanism  # as a run begins with it
        seen: list[float] = []
        for round_number in range(number, number + releases):
            before, self._notes.heard = checkpoint.model, 0
            try:
                checkpoint, record = self._round(engine, round_number, checkpoint, last=False)
            except (DropoutError, SpoiledError, RunError):  # that a round fails is seen by everybody
                seen += [1.0, 0.0, 0.0, 0.0, 0.0, float(self._notes.heard)] + [0.0] * (_LOOKS + 1)
                continue
            told = (record.attempts, record.clients_asked, record.clients_replied, record.bytes_up)
            seen += [0.0, *(0.0 if value is None else float(value) for value in told), float(self._notes.heard)]
            seen += looks(checkpoint.model.astype(np.float64) - before)
            seen.append(_number(checkpoint.mechanism))
        return seen

    def _charge(self, *_: object) -> None:
        """Charge nothing: the claim about a trial is made once, by the same ledger."""


_LOOKS = len(LAYERS) + 4


def looks(moved: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """Return what an adversary looks at in a model that moved.

    That is: along each layer's direction; at the largest and the smallest number of the direction, for mechanisms that
    name coordinates; its sum, for whatever was put in the place of an update that is no number; and its size.
    """
    along = [float(moved @ layer(number)) for number in range(len(LAYERS))]
    places = [float(moved[np.argmax(direction())]), float(moved[np.argmin(direction())])]
    return [*along, *places, float(moved.sum()), float(moved @ moved)]


def _number(state: bytes) -> float:
    """Return a number of a mechanism's public state, such as the next round's clip bound."""
    return 0.0 if len(state) < struct.calcsize(">d") else float(struct.unpack(">d", state[-8:])[0])


@dataclass(frozen=True, kw_only=True)
class Federation:
    """A plan that is played, and what its clients' settings are."""

    config: Resolved
    plan: Plan
    clients: int

    def claimed(self, releases: int) -> Claimed:
        """Return what the account would charge a client that is asked in every round of a trial."""
        claim, event = self.plan.claim, self.plan.mechanism.event
        assert claim is not None
        assert event is not None
        ledger = Ledger(unit=claim.unit, neighbours=claim.neighbours)
        for number in range(releases):
            ledger = ledger.charged(claim.event(event), round_number=number + 1)
        return _claimed(ledger, claim.delta)

    def pair(self, attack: Attack, randomness: Randomness, releases: int, claimed: Claimed | None = None) -> Pair:
        """Return the two worlds of an attack; claimed is what the account would charge, or else what is given."""
        claim = self.plan.claim
        assert claim is not None
        worlds = [
            _World(
                self, attack, attack.world(claim.neighbours, first=first), randomness.within(attack.name, int(first))
            )
            for first in (True, False)
        ]
        plays = [_player(world, releases) for world in worlds]
        return Pair(name=attack.name, claimed=claimed or self.claimed(releases), worlds=(plays[0], plays[1]))


@functools.lru_cache(maxsize=64)
def _claimed(ledger: Ledger, delta: float) -> Claimed:
    """Return a claim, the same one for the same ledger: its profile takes a moment to find."""
    return Claimed(ledger=ledger, delta=delta)


def _player(world: _World, releases: int) -> Callable[[int], Rows]:
    return lambda trials: world.play(trials, releases)


class _World:
    """One of two worlds, whose parties are made when it is first played and stay for further trials."""

    def __init__(
        self, federation: Federation, attack: Attack, canary: tuple[Vector, ...] | None, randomness: Randomness
    ) -> None:
        self._federation = federation
        self._attack = attack
        self._canary = canary
        self._randomness = randomness
        self._next = 1
        self._open: tuple[_Rounds, Engine, MadeUp] | None = None

    def play(self, trials: int, releases: int) -> Rows:
        """Play so many trials more."""
        runner, engine, trainer = self._open or self._opened()
        rows = []
        for _ in range(trials):
            trainer.first_round = self._next
            rows.append(runner.trial(engine, self._next, releases))
            self._next += releases
        return np.array(rows)

    def _opened(self) -> tuple[_Rounds, Engine, MadeUp]:
        plan, clients = self._federation.plan, self._federation.clients
        who = clients - 1
        there = clients if self._canary is not None or self._always_asked else clients - 1
        trainer = MadeUp(who=who, canary=self._canary or (), others=self._attack.others)
        plan = replace(plan, sampler=_over(plan.sampler, there), protocol=_endless(plan.protocol))
        job: Any = SimpleNamespace(  # what a runner and a connection in one process ask of a job
            plan=plan,
            config=self._federation.config,
            holdings=SimpleNamespace(rows=[range(_EXAMPLES)] * clients, sizes=np.full(clients, _EXAMPLES)),
            trainer=trainer,
            test=None,
            examples=None,
            remarks=(),
            advice="",
        )
        notes = _Notes()
        runner = _Rounds(job=job, randomness=self._randomness, notes=notes)
        watch = Watch(stopwatch=Stopwatch(), on_reply=runner._count_reply, note=runner._note)
        with ExitStack() as stack:
            engine = stack.enter_context(InProcess(job).open(job, self._randomness, watch))
            stack.pop_all()  # nothing is held that would have to be closed
        engine = self._losing(engine, who)
        runner.prepare(engine, range(there))
        self._open = (runner, engine, trainer)
        return self._open

    @property
    def _always_asked(self) -> bool:
        """Whether a round asks everyone that the settings count: one that is not there is then asked in vain."""
        return self._federation.plan.sampler.expected >= self._federation.clients

    def _losing(self, engine: Engine, who: ClientId) -> Engine:
        """Return the engine, some replies lost on the way."""
        attack, answer = self._attack, engine.exchange
        silent = {*range(attack.lost)} - {who}
        if self._canary is None and self._always_asked:
            silent.add(who)
        if silent:

            def present(requests: Frames) -> Frames:
                return engine.exchange(only(requests, [client for client in requests if client not in silent]))

            answer = present
        if attack.share_lost:
            answer = Unreliable(answer=answer, rate=attack.share_lost, randomness=self._randomness)
        return engine if answer == engine.exchange else InProcessEngine(answer=answer)


def _over(sampler: Any, population: int) -> Any:
    """Return the plan's sampler over a federation with maybe a client less, whose settings stay what they are."""
    expected, kind = sampler.expected, type(sampler)
    known = {field.name: getattr(sampler, field.name) for field in fields(sampler)}
    known |= {"population": population} | ({"size": max(1, min(known["size"], population))} if "size" in known else {})
    return type(kind.__name__, (kind,), {"expected": property(lambda _: expected)})(**known)


def _endless(protocol: Any) -> Any:
    """Return the protocol for as many rounds as are played; how many a run has is no part of its privacy."""
    return replace(protocol, rounds=_MANY) if any(field.name == "rounds" for field in fields(protocol)) else protocol


def subject(config: Resolved, *, randomness: Randomness, releases: int = RELEASES) -> Subject | None:
    """Return what there is to audit of a mode's protection of clients under these settings; None where nothing is.

    Args:
        config: a run's own settings, or those of a mode by itself.
        randomness: of all worlds; by the operating system's the noise that is audited is the real one.
        releases: how many rounds a trial has.
    """
    if config.federate.separation is not None:
        raise ConfigError(
            f"federate.separation={config.federate.separation} is charged for a whole run at once, in which a client "
            "takes part in rounds far apart. An audit plays rounds one after another, and can't say anything of it yet."
        )
    mode = mode_of(config.mode)
    small = _smallest(config)
    claim = small.plan.claim
    if claim is None or small.plan.mechanism.event is None:
        return None
    pairs = [small.pair(attack, randomness.within("small"), releases) for attack in attacks(releases)]
    several = _several(config, small)
    if several is not None:
        attack = replace(attacks(releases)[0], name="an update among several")
        pairs.append(several.pair(attack, randomness.within("several"), releases))
    least = None if mode.central else _fewest_replies(config)
    if least is not None:
        lost = least.clients - int(getattr(least.plan.protocol, "minimum_clients", least.clients))
        attack = replace(attacks(releases)[0], name="as few replies as may be summed", lost=lost)
        pairs.append(least.pair(attack, randomness.within("least"), releases))
    return Subject(name=mode.name, pairs=pairs, against=claim.against, releases=releases, notes=_notes(claim))


def _notes(claim: Claim) -> tuple[str, ...]:
    if claim.nominal is None:
        return ()
    return (f"The nominal epsilon {claim.nominal[0]:g} is not what is claimed, and not what was audited.",)


def _smallest(config: Resolved) -> Federation:
    """Return the smallest federation that the mode plans at the run's own sampling rate."""
    clients = config.federate.clients or _FEW
    rate = min(1.0, plan_of(config, clients).sampler.expected / clients)
    refusal: ConfigError | None = None
    for size in range(1, _FEW + 1):
        try:
            return _federation(config, clients=max(size, round(size / rate)), per_round=size)
        except ConfigError as error:
            refusal = refusal or error
    try:  # such as a clip that adapts, whose noise is for the cohort it was planned for
        return _federation(config, clients=clients, per_round=max(1, round(rate * clients)))
    except ConfigError:
        assert refusal is not None
        raise refusal from None


def _several(config: Resolved, small: Federation) -> Federation | None:
    """Return a federation with a larger cohort: what depends on its size shows there."""
    rate = small.plan.sampler.expected / small.clients
    if small.plan.sampler.expected >= _SEVERAL:
        return None
    try:
        return _federation(config, clients=round(_SEVERAL / rate), per_round=_SEVERAL)
    except ConfigError:
        return None


def _fewest_replies(config: Resolved) -> Federation | None:
    """Return a federation some of whose clients may be lost, where the mode allows it."""
    try:
        return _federation(config, clients=4, per_round=4, minimum=2)
    except ConfigError:
        return None


def _federation(config: Resolved, *, clients: int, per_round: int, minimum: int | None = None) -> Federation:
    asked = config.federate.minimum_clients
    sizes = {
        "clients": clients,
        "per_round": None if per_round == clients else per_round,
        "share": None,
        "minimum_clients": minimum if asked is None or minimum is not None else min(asked, per_round),
        "drop": 0.0,
    }
    mode = mode_of(config.mode)
    changes = {"federate": config.federate.model_copy(update=sizes), "out": None, "audit": Audit()}
    config = config.model_copy(update=changes)
    for key, value in mode.replayed.items():
        section, _, name = key.partition(".")
        config = config.model_copy(update={section: getattr(config, section).model_copy(update={name: value})})
    config, plan = mode.fitted(config, plan_of(config, clients), [_EXAMPLES] * clients)
    plan = replace(plan, mechanism=plan.mechanism.fitted(LAYERS))
    return Federation(config=config, plan=plan, clients=clients)
