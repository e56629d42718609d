"""A strategy around a strategy: what leaves the clients is protected, and what is done with their mean stays."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr import serverapp
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from tacit.errors import BudgetError, ConfigError, DropoutError, RemoteError, RunError, TacitError
from tacit.federated.plan import NO_CLAIM, Plan, Privacy
from tacit.flow import ClientId
from tacit.flower import envelope
from tacit.flower.engine import FlowerEngine
from tacit.flower.strategy import settings
from tacit.flower.strategy.arrays import Shape, broadcast, frames_of
from tacit.flower.strategy.guests import Guests, exchange_for
from tacit.flower.strategy.session import Exchange, Session
from tacit.flower.strategy.settings import CLASSIC
from tacit.modes.catalogue import mode_of
from tacit.parties.calls import Value
from tacit.parties.hello import IN_APP, Numbers, Terms
from tacit.rounding import epsilon_text
from tacit.runs.journal import Failed, Round

_LOG = logging.getLogger("flwr")
_WITHHELD = (
    "what clients' train functions answer beside arrays (losses, numbers of examples) is withheld, as no noise "
    "protects it: train metrics are empty but for epsilon. Evaluate functions, and evaluate_fn on the server, are "
    "passed on."
)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A round that is under way."""

    round_number: int
    message: Message  # one of those that were sent; the answer to it is the mean
    sent: ArrayRecord
    cohort: frozenset[ClientId]
    key: str  # of the record with the arrays


class Private(Strategy):
    """Wraps a strategy, so that of the clients' updates only a protected sum reaches it.

    The wrapped strategy chooses the clients and builds its messages; this one adds the protocol's task to each. From
    the replies it makes the sum by the protocol, releases it through the mechanism, and hands the strategy one reply
    that holds the mean. So FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad and FedProx keep their step; a strategy that
    needs single updates is refused. Clients need the mod: ``ClientApp(mods=[tacit.flower.private_mod])``.

    Attributes:
        strategy: the wrapped one.
        arrays: the model of the last round that was released.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        mode: str | None = None,
        config: Mapping[str, Value] | None = None,
        out: str | Path | None = None,
        **sections: Any,
    ) -> None:
        """Wrap a strategy.

        Args:
            strategy: any strategy of Flower's Message API that averages.
            mode: the protection: plain, dp, local-dp, paillier, masks, signds or nbafl.
            config: instead of the mode and sections, the run's config, with keys such as ``tacit.mode``.
            out: a folder for the ledger, which is written before anything is sent.
            **sections: what the configuration has, such as ``dp={"noise": 1.0}``, ``federate={"clients": 10}``.
        """
        if isinstance(strategy, Private):
            raise ConfigError("The strategy is wrapped already. Wrap it once.")
        self.strategy = checked(strategy)
        if config is not None:
            if mode is not None or sections:
                raise ConfigError(
                    "Expected a mode and its settings, or config=context.run_config, got both. Put them in one place."
                )
            found = settings.from_run(config)
            if found is None:
                raise ConfigError(f"The run's config has no key under {settings.PREFIX}. Set {settings.PREFIX}mode.")
        else:
            found = settings.given(mode=mode, sections=sections)
        self._config = found if out is None else found.model_copy(update={"out": Path(out)})
        self._text = settings.to_text(found)
        self._weighted_by = str(getattr(strategy, "weighted_by_key", "num-examples"))
        self._rounds = found.federate.rounds if "rounds" in found.federate.model_fields_set else None
        self._guests: Guests | None = None
        self._engine: FlowerEngine | None = None
        self._session: Session | None = None
        self._numbers: Numbers | None = None
        self._asked: _Asked | None = None
        self._lost = 0  # rounds in a row with too few replies
        self.arrays: ArrayRecord | None = None

    @property
    def privacy(self) -> Privacy | None:
        """What the run can claim now: epsilon, delta, unit, neighbours, and against whom.

        None before its first round, and where it claims nothing.
        """
        return None if self._session is None else self._session.privacy

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run Flower's loop, once; the budget and the calibrated noise are for ``num_rounds``."""
        if self._session is not None:
            raise RunError("This strategy has run already, and its ledger is of that run. Make a new one for each run.")
        if self._rounds not in (None, num_rounds):
            raise ConfigError(
                f"federate.rounds={self._rounds} and num_rounds={num_rounds} are one and the same number. Leave out "
                "federate.rounds."
            )
        self._rounds = num_rounds
        try:
            return super().start(grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        except TacitError as error:
            _note(f"the run stops: {error}", logging.ERROR)
            raise error.with_traceback(None) from None  # Flower prints a traceback, which had better be short

    def summary(self) -> None:
        """Log who sees what, and the wrapped strategy's own summary."""
        clients = self._config.federate.clients or 10
        part = round(clients * min(max(float(getattr(self.strategy, "fraction_train", 1.0)), 0.0), 1.0))
        per_round = self._config.federate.per_round or max(part, 1)
        guess = Numbers(clients=clients, per_round=min(per_round, clients), rounds=self._rounds or 1)
        plan = settings.plan(self._text, self._numbers or guess)
        lines = [f"mode {plan.mode} around {type(self.strategy).__name__}"]
        if self._numbers is None and self._config.federate.clients is None:
            lines.append(f"clients are counted before the first round; what follows is for {clients} of them")
        lines += [f"{who} sees: {what}" for who, what in _sees(plan)]
        if plan.claim is None:
            lines.append(NO_CLAIM)
        else:
            claim = plan.claim
            lines.append(
                f"differential privacy at delta {claim.delta:g}, unit {claim.unit}, {claim.neighbours} neighbours, "
                f"against {claim.against}"
            )
            lines += claim.notes
        lines += mode_of(plan.mode).notes(self._config)
        lines += [_WITHHELD, IN_APP]
        for line in lines:
            _note(line)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy build its messages, and add the protocol's task to each."""
        guests = self._greeting(grid)
        guests.look_again()
        self._asked = None
        if self._session is not None and self._session.injects:
            vector = self._session.shape.vector(arrays)
            moved = self._session.injected(vector, server_round) - vector
            arrays = self._session.shape.moved(arrays, moved)
        messages = list(self.strategy.configure_train(server_round, arrays, config, guests))
        if not messages:
            return []
        key, sent = broadcast(messages)
        cohort = sorted(message.metadata.dst_node_id for message in messages)
        session = self._session_for(Shape.of(sent), cohort, guests)
        try:
            requests = session.ask(cohort, server_round)
        except BudgetError as error:
            kept = "Not one round fits" if self.arrays is None else "The last round's model is in strategy.arrays"
            raise BudgetError(f"{error} Nothing was sent. {kept}.") from error
        except RemoteError as error:
            self._lose(error, session, server_round)
            return []
        more = self._terms().to_record()
        records = {frame: envelope.record_of(frame) for frame in set(requests.values())}
        asked = [message for message in messages if message.metadata.dst_node_id in requests]  # others did not enrol
        for message in asked:
            node = message.metadata.dst_node_id
            content = RecordDict(dict(message.content.items()))  # strategies let messages share one
            content[envelope.FRAME] = records[requests[node]]
            content[envelope.CALL] = ConfigRecord({"party": node, **more})
            message.content = content
        self._asked = _Asked(
            round_number=server_round, message=messages[0], sent=sent, cohort=frozenset(cohort), key=key
        )
        return asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Form the sum, release the mean, and hand it to the strategy as one reply."""
        asked, self._asked = self._asked, None
        if asked is None:
            return self.strategy.aggregate_train(server_round, replies)
        if asked.round_number != server_round:
            raise RunError(f"Round {asked.round_number} was asked for, and replies for round {server_round} came.")
        session = self._session
        assert session is not None
        frames = frames_of(replies, asked.cohort, _note)
        try:
            total, release = session.release(frames)
        except RemoteError as error:
            self._lose(error, session, server_round)
            return None, None
        self._lost = 0
        for note in (*total.notes, *self._cut_off(release.clipped)):
            _note(note, logging.WARNING)
        mean = RecordDict(
            {
                asked.key: session.shape.moved(asked.sent, release.update),
                "metrics": MetricRecord({self._weighted_by: 1}),
            }
        )
        arrays, metrics = self.strategy.aggregate_train(server_round, [Message(mean, reply_to=asked.message)])
        if arrays is not None:
            arrays = self.arrays = session.shape.restored(arrays, asked.sent)
        return arrays, self._told(session, server_round, len(total.clients), len(asked.cohort), metrics)

    def _cut_off(self, numbers: int | None) -> list[str]:
        """Return what is to be said of numbers beyond the clip."""
        section = mode_of(self._config.mode).section
        if not numbers or section is None:
            return []
        bound = f"{section}.clip={getattr(self._config, section).clip:g}"
        return [f"{numbers} numbers of the updates were beyond {bound}, and were cut off there"]

    def _lose(self, error: RemoteError, session: Session, server_round: int) -> None:
        """Go on without a round that had too few replies, unless it was one of too many; raise what else went wrong."""
        session.record(Failed(round=server_round, attempt=0, reason=str(error)))
        if not isinstance(error, DropoutError):
            raise error
        self._lost += 1
        if self._lost > self._config.federate.retries:
            raise DropoutError(
                f"{error} That was {self._lost} rounds in a row; the last model is in strategy.arrays."
            ) from error
        _note(f"round {server_round} is lost, and the model stays as it was: {error}", logging.WARNING)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Pass on; nodes that only hold keys are not asked."""
        return self.strategy.configure_evaluate(server_round, arrays, config, self._greeting(grid))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Pass on."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _greeting(self, grid: Grid) -> Guests:
        if self._guests is None or self._guests.grid is not grid:
            self._engine = FlowerEngine(
                grid=grid, deadline=self._config.flower.deadline, note=_note, message_type=MessageType.TRAIN
            )
            self._engine.terms = self._terms().to_record()
            self._guests = Guests(grid=grid, engine=self._engine)
        return self._guests

    def _terms(self) -> Terms:
        return Terms(settings=self._text, weighted_by=self._weighted_by, numbers=self._numbers)

    def _session_for(self, shape: Shape, cohort: list[ClientId], guests: Guests) -> Session:
        if self._numbers is None:
            self._numbers = self._counted(cohort, guests)
        if len(cohort) > self._numbers.clients:
            raise RunError(
                f"A round asks {len(cohort)} clients, and the run was set up for {self._numbers.clients}. Set "
                "federate.clients to the most there can be."
            )
        if self._session is None:
            assert self._engine is not None
            self._engine.terms = self._terms().to_record()
            plan = settings.plan(self._text, self._numbers)
            if plan.private and shape.statistics:
                raise ConfigError(
                    f"The model has batch norm ({shape.statistics[0]!r}), which can't train under differential "
                    "privacy: a running variance with noise on it can be below zero. Nothing was sent. Put group norm "
                    "in its place, in the server's and in the clients' app: model = tacit.fix(model)."
                )
            exchange = exchange_for(plan.protocol, self._config, guests=guests, engine=self._engine, note=_note)
            self._session = Session(
                plan=plan,
                config=self._config,
                rounds=self._numbers.rounds,
                shape=shape,
                cohort=cohort,
                engine=Exchange(exchange=exchange),
            )
            if shape.kept:
                _note(f"not averaged, as they hold no fractions: {', '.join(shape.kept)}")
            if self._session.earlier:
                _note(f"{self._session.earlier} earlier charges in {self._config.out} count on", logging.WARNING)
        elif self._session.shape != shape:
            raise RunError("The model's arrays changed their names, shapes or types during the run.")
        left = guests.shown - set(cohort)
        if left and self._session.asks_everyone:
            raise RunError(
                f"The strategy leaves out {len(left)} of the {len(guests.shown)} clients that are there, and epsilon "
                "(add-remove neighbours) was stated for rounds that ask everyone. Nothing was sent. Set "
                "dp.neighbours=replace-one, or federate.per_round to how many clients each round asks."
            )
        return self._session

    def _counted(self, cohort: list[ClientId], guests: Guests) -> Numbers:
        federate = self._config.federate
        if self._rounds is None:
            raise ConfigError("How many rounds there will be is not known: use strategy.start, or set federate.rounds.")
        clients = federate.clients or len(guests.get_node_ids())
        per_round = federate.per_round or min(len(cohort), clients)
        if per_round > clients:
            raise ConfigError(f"federate.per_round={per_round} is more than the {clients} clients there are.")
        return Numbers(clients=clients, per_round=per_round, rounds=self._rounds)

    def _told(
        self, session: Session, round_number: int, replied: int, asked: int, metrics: MetricRecord | None
    ) -> MetricRecord | None:
        """Log the round and what it cost, and add epsilon to the metrics."""
        privacy = session.privacy
        epsilon = None if privacy is None else privacy.epsilon
        figures = {"clients_asked": asked, "clients_replied": replied}
        session.record(Round(round=round_number, epsilon=epsilon, figures=figures))
        line = f"round {round_number}: {replied} of {asked} clients"
        if privacy is None:
            _note(line)
            return metrics
        spent = epsilon_text(privacy.epsilon, digits=4)
        _note(
            f"{line}; epsilon {spent} at delta {privacy.delta:g}, unit {privacy.unit}, {privacy.neighbours} "
            f"neighbours, against {privacy.against}"
        )
        if math.isinf(privacy.epsilon):
            return metrics
        told = MetricRecord() if metrics is None else metrics
        told["epsilon"] = privacy.epsilon
        return told


def _sees(plan: Plan) -> tuple[tuple[str, str], ...]:
    guarantee = plan.guarantee
    return ("the server", guarantee.server), ("a client", guarantee.clients), ("an outsider", guarantee.outsider)


def _note(text: str, level: int = logging.INFO) -> None:
    _LOG.log(level, "tacit: %s", text)


_CLASSIC = ("flwr.server.strategy", "flwr.server.server_config", "flwr.compat.", "flwr.client.")
_SINGLE = {  # strategies that look at single updates, which nobody but their clients sees here
    "FedMedian": "a median",
    "FedTrimmedAvg": "a trimmed mean",
    "Krum": "distances between updates",
    "MultiKrum": "distances between updates",
    "Bulyan": "distances between updates",
    "QFedAvg": "each client's loss",
    "FedXgbBagging": "each client's trees",
    "FedXgbCyclic": "each client's trees",
}


def _is_classic(given: object) -> bool:
    """Return whether somebody handed over a part of an app from before the Message API."""
    kinds = given.__mro__ if isinstance(given, type) else type(given).__mro__
    function = callable(given) and _name_of(given) in ("server_fn", "client_fn")
    return function or any(kind.__module__.startswith(_CLASSIC) for kind in kinds)


def _name_of(given: object) -> str:
    return str(getattr(given, "__name__", type(given).__name__))


def checked(strategy: Strategy) -> Strategy:
    """Return the strategy, or say why it can't be wrapped."""
    if _is_classic(strategy):
        raise ConfigError(f"{_name_of(strategy)} is a part of a classic app. {CLASSIC}")
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"Expected a strategy of Flower's Message API (flwr.serverapp.strategy), got {strategy!r}.")
    name = type(strategy).__name__
    single = [kind for kind in _SINGLE if isinstance(strategy, getattr(serverapp.strategy, kind))]
    if single:
        raise ConfigError(
            f"{name} needs {_SINGLE[single[0]]}, and no single update reaches the server's strategy here. Use one that "
            "averages: FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad or FedProx."
        )
    if any(kind.__name__.startswith("DifferentialPrivacy") for kind in type(strategy).__mro__):
        raise ConfigError(
            f"{name} adds noise of its own, whose cost the ledger would not know. Wrap the strategy inside it, with "
            "mode='dp' or 'local-dp'."
        )
    return strategy
