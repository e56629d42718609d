"""What a run reached, what it cost and who sees what: first on its page, and last in the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tacit.modes.catalogue import mode_of
from tacit.report.page import Card, Cards, Cell, Drawing, Note, Part, Party, Section, Table, Tone
from tacit.report.run import audit, risk
from tacit.report.run.baseline import Baseline
from tacit.report.words import (
    bytes_text,
    guarantee,
    keeps_training_scores,
    metrics_text,
    names_text,
    percent,
    seconds_text,
    short,
    time_text,
    without_names,
)
from tacit.rounding import epsilon_text
from tacit.runs.chance import Chance
from tacit.runs.history import History
from tacit.runs.remarks import LARGEST_MEANINGFUL, ON_COHORTS, ON_SECONDS, ON_TRAINING
from tacit.runs.result import Result, RoundRecord
from tacit.runs.run import is_own
from tacit.studies.results import Claimed

SIMULATION = (
    "This run was a simulation of a federation: all parties were one program on one machine, and whoever ran it could "
    "read everything. The drawing shows who would see what in a deployment with these settings."
)
_KEYS = {
    "authority": "The key authority opens the sum of each round that the server sends; together with the server it "
    "could open one update.",
    "threshold": "Enough key holders together open the sum of each round; fewer of them open nothing.",
    "shared": "Every client has the same private key (legacy): any of them could open every update.",
}
_PROTECTION = ("protect", "aggregate", "recover")  # stages that a protection adds to
_UNBOUNDED = "nothing bounds what the models tell about a client"
_MANY = 100  # clients over which the noise of central privacy is small
_FEW = 20  # clients whose scores are told one by one
_NOTABLE = 0.05  # share of the time from which on they are told


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a run claims about a client or an example, and the budget it had, where that is known."""

    privacy: Claimed
    budget: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """What a run came to, finished or not; None is what is not known, or may not be told."""

    rounds: tuple[RoundRecord, ...]
    test_accuracy: float | None
    test_loss: float | None
    train_accuracy: float | None
    seconds: float | None
    setup_seconds: float | None
    stage_seconds: Mapping[str, float]
    promises: tuple[Promise, ...]
    protected: bool  # whether anything is promised: then it is said of what no noise protects
    expected: bool  # whether bytes are those of the expected cohort
    chance: Chance | None = None  # what a model reaches that has learned nothing
    baseline: Baseline | None = None  # a plain run that is like it

    @classmethod
    def of(cls, result: Result) -> RunOutcome:
        """Return the outcome of a run that has just ended."""
        claims = (result.privacy, result.example_privacy)
        promises = tuple(Promise(privacy=claim) for claim in claims if claim is not None)
        return cls(
            rounds=result.rounds,
            test_accuracy=result.test_accuracy,
            test_loss=result.test_loss,
            train_accuracy=result.train_accuracy,
            seconds=result.seconds,
            setup_seconds=result.setup_seconds,
            stage_seconds=result.stage_seconds,
            promises=promises,
            protected=ON_SECONDS in result.notes,
            expected=ON_COHORTS in result.notes,
            chance=Chance(share=result.chance, examples=result.test_examples)
            if result.chance and result.test_examples
            else None,
        )

    @classmethod
    def read(cls, history: History, *, full: bool, baseline: Baseline | None = None) -> RunOutcome:
        """Return the outcome of a run as far as it got; what may not be passed on only with ``full``."""
        result = history.result
        tested = [record for record in history.rounds if record.test_accuracy is not None]
        told = [record.wall_seconds for record in history.rounds if record.wall_seconds is not None]
        kept = result is None or keeps_training_scores(history, full=full)
        return cls(
            rounds=history.rounds,
            test_accuracy=tested[-1].test_accuracy if tested else None,
            test_loss=tested[-1].test_loss if tested else None,
            train_accuracy=None if result is None or kept else result.train_accuracy,
            seconds=result.seconds if result is not None else sum(told) if len(told) == len(history.rounds) else None,
            setup_seconds=None if result is None else result.setup_seconds,
            stage_seconds={} if result is None else result.stage_seconds,
            promises=tuple(Promise(privacy=level.privacy, budget=level.budget) for level in history.levels),
            protected=history.plan.private,
            expected=history.secret_cohort,
            chance=history.chance,
            baseline=baseline,
        )

    @property
    def alone(self) -> bool:
        """Whether one data holder trained, without a federation."""
        return any(record.steps is not None for record in self.rounds)

    @property
    def at_chance(self) -> bool:
        """Whether the test accuracy is what chance gives."""
        if self.chance is None or self.test_accuracy is None:
            return False
        return self.chance.holds(self.test_accuracy, loss=self.test_loss)


def ending(result: Result) -> list[Part]:
    """Return the end of a run: what it reached, what it cost, where it is, what to try next."""
    outcome = RunOutcome.of(result)
    rows: list[tuple[Cell, ...]] = [
        ("" if place else "privacy", " ".join(claim.notes))
        for place, claim in enumerate(filter(None, (result.privacy, result.example_privacy)))
        if claim.notes  # that nothing is claimed, the card says
    ]
    claims = filter(None, (result.privacy, result.example_privacy))
    rows += [("that means", risk.sentence(claim).replace("**", "")) for claim in claims]
    if result.audit is not None:
        rows.append(("audited", audit.sentence(result.audit).replace("**", "")))
    if result.client_names:
        rows.append(("clients", names_text(result.client_names)))
    if result.metrics:
        rows.append(("metrics", metrics_text(result.metrics)))
    rows += _of_clients(result)
    if not outcome.alone:
        rows.append(("server sees", result.sees["server"]))
    rows.append(("randomness", randomness(result.seed, simulation=result.simulation)))
    clipped = sum(record.clipped or 0 for record in result.rounds)
    if clipped:
        key = f"{mode_of(result.mode).section}.clip"
        rows.append(("clipped", f"{clipped:,} coordinates of updates: raise {key} to keep them whole"))
    if result.form_reason:
        rows.append(("trained by", f"{result.form}, because {result.form_reason}"))
    if result.folder is not None:
        rows.append(("written to", result.folder))
    following = _next(result)
    if following:
        rows.append(("try next", following))
    said = verdict(outcome)
    return [*([said] if outcome.at_chance and said else []), cards(outcome), Table(columns=(), rows=rows)]


def _of_clients(result: Result) -> list[tuple[Cell, ...]]:
    """Return the scores on each client's own data, or their spread where there are many clients."""
    scores = result.client_scores
    if len(scores) <= _FEW:
        return [(f"on {name}", metrics_text(told)) for name, told in scores.items()]
    spread = []
    for metric in next(iter(scores.values())):
        values = sorted(told[metric] for told in scores.values() if metric in told)
        spread.append(f"{metric} {values[0]:.4f} to {values[-1]:.4f}, median {values[len(values) // 2]:.4f}")
    return [("on clients", "; ".join(spread))]


def verdict(outcome: RunOutcome) -> Note | None:
    """Return in words what a run reached: beside chance, and beside the plain run where one is known."""
    accuracy, chance, baseline = outcome.test_accuracy, outcome.chance, outcome.baseline
    if accuracy is None:
        return None
    if chance is not None and outcome.at_chance:
        naming = f"naming the most frequent class every time would give ({percent(chance.share)})"
        if accuracy <= chance.share + chance.error:
            text = (
                f"**At chance.** A test accuracy of {percent(accuracy)} is what {naming}: "
                "the model has learned nothing that this test can show."
            )
        elif chance.holds(accuracy):
            text = (
                f"**At chance.** With {chance.examples:,} test examples, an accuracy of {percent(accuracy)} is too "
                f"near to what {naming} to show that anything was learned."
            )
        else:
            text = (
                f"**At chance.** A test accuracy of {percent(accuracy)} is little more than what {naming}, and the "
                f"test loss of {outcome.test_loss:,.4g} is that of weights which are noise."
            )
        if outcome.protected:
            text += (
                " Most likely the noise outweighs what the clients' updates say. More clients per round help most, "
                "then a larger epsilon, fewer parameters or better features."
            )
            if any(promise.privacy.unit == "client" for promise in outcome.promises):
                text += (
                    " A few clients with many examples each learn more in mode dp-sgd, which protects single examples "
                    "in the place of clients."
                )
        return Note(text=text, tone="bad")
    text = f"**It learned:** {percent(accuracy)} of the test data are right"
    text += "" if chance is None else f", where chance gives {percent(chance.share)}"
    tone: Tone = "good"
    if baseline is not None and baseline.accuracy is not None:
        floor = 0.0 if chance is None else chance.share
        if accuracy - floor < 0.5 * (baseline.accuracy - floor):
            text, tone = text.replace("It learned:", "It learned little:"), "warn"
        cost = _cost(accuracy, baseline.accuracy, chance)
        text += f". Without protection the run {baseline.name} reached {percent(baseline.accuracy)}: {cost}"
    return Note(text=f"{text}.", tone=tone)


def _cost(accuracy: float, plain: float, chance: Chance | None) -> str:
    """Return in words what a protection cost, as far as the test data can tell two accuracies apart."""
    gap = plain - accuracy
    if gap <= 0.0005:
        return "the protection costs no accuracy here"
    if chance is not None:
        error = math.sqrt((plain * (1.0 - plain) + accuracy * (1.0 - accuracy)) / chance.examples)
        if gap <= 2.0 * error:
            return f"{100 * gap:.1f} points, no more than {chance.examples:,} test examples tell apart from nothing"
    return f"the protection costs {100 * gap:.1f} points"


def section(history: History, *, full: bool, baseline: Baseline | None = None) -> Section:
    """Return the summary."""
    parts: list[Part] = []
    outcome = RunOutcome.read(history, full=full, baseline=baseline)
    said = verdict(outcome)
    if history.status != "finished":
        planned = (
            f"{len(history.rounds)} of {history.config.federate.rounds} {'stretches' if history.alone else 'rounds'}"
        )
        stopped = history.status == "stopped"
        word = "The run stopped after" if stopped else "The run has done"
        text = f"**{word}** {planned}. {_told(history, history.reason, full=full)}"
        parts.append(Note(text=text, tone="warn" if stopped else "plain"))
    parts += [*([said] if said else []), cards(outcome)]
    elsewhere = (ON_SECONDS, ON_COHORTS, ON_TRAINING)  # said where these numbers are
    parts += [Note(text=_told(history, note, full=full)) for note in history.notes if note not in elsewhere]
    parts.append(_facts(history))
    if not history.alone:
        parts.append(drawing(history))
    return Section(title="Summary", parts=parts)


def drawing(history: History) -> Drawing:
    """Return who sees what, and what travels between them."""
    mode, config, sees = mode_of(history.config.mode), history.config, history.plan.guarantee
    sent = "what a client sends"
    if mode.hidden:
        sent = f"an update, {mode.hidden}"
    elif mode.noisy(config) and not mode.central:
        sent = "an update, with the client's noise"
    elif mode.central:
        sent = "an update, clipped"
    elif not mode.noisy(config):
        sent = "an update"
    beside = [Party(name="An outsider on the network", sees=f"It sees {sees.outsider}.", icon="eye")]
    if mode.encrypted:
        beside.append(Party(name="Who holds a key", sees=_KEYS[config.paillier.keys], icon="key"))
    told = " ".join(risk.sentence(level.privacy).replace("**", "") for level in history.levels)
    beside.append(Party(name="Whoever gets the model", sees=told or f"{_UNBOUNDED.capitalize()}.", icon="eye"))
    return Drawing(
        title="Who sees what",
        left=Party(
            name=f"{history.clients:,} clients", sees=f"Each sees its own data, and {sees.clients}.", icon="clients"
        ),
        right=Party(name="The server", sees=f"It sees {sees.server}.", icon="server"),
        forth=sent,
        back="the model",
        beside=beside,
        caption=SIMULATION if history.one_process else "",
    )


def _told(history: History, text: str, *, full: bool) -> str:
    return without_names(text) if history.secret_cohort and not full else text


def cards(outcome: RunOutcome) -> Cards:
    """Return the figures of a run, each with all that belongs to it."""
    shown = [_accuracy(outcome), *_privacy(outcome), _time(outcome)]
    return Cards(cards=shown if outcome.alone else [*shown, _traffic(outcome)])


def randomness(seed: int | None, *, simulation: bool) -> str:
    """Return where a run's draws came from."""
    if not simulation:
        return "from the operating system"
    return f"seed {seed}, a simulation: whoever has the seed can repeat every draw, the noise included"


def _accuracy(outcome: RunOutcome) -> Card:
    details = [] if outcome.test_accuracy is not None else ["no round was tested"]
    if outcome.chance is not None and outcome.test_accuracy is not None:
        level = f"chance is {percent(outcome.chance.share)}"
        details.append(f"at chance: {level}" if outcome.at_chance else level)
    if outcome.train_accuracy is not None:
        exact = ", which no noise protects" if outcome.protected else ""
        details.append(f"training data {percent(outcome.train_accuracy)}{exact}")
    return Card(
        label="test accuracy",
        value="–" if outcome.test_accuracy is None else percent(outcome.test_accuracy),
        detail="; ".join(details),
        tone="plain" if outcome.test_accuracy is None else "bad" if outcome.at_chance else "good",
    )


def _privacy(outcome: RunOutcome) -> list[Card]:
    if not outcome.promises:
        return [Card(label="differential privacy", value="none claimed", detail=_UNBOUNDED, tone="warn")]
    shown = []
    for promise in outcome.promises:
        epsilon = promise.privacy.epsilon
        budget = "" if promise.budget is None else f"of a budget of {short(promise.budget)}; "
        shown.append(
            Card(
                label=f"epsilon for one {promise.privacy.unit}",
                value=epsilon_text(epsilon, digits=4),
                detail=f"{budget}{guarantee(promise.privacy)} ({promise.privacy.accountant})",
                tone="warn" if epsilon > LARGEST_MEANINGFUL else "good",
            )
        )
    return shown


def _time(outcome: RunOutcome) -> Card:
    last = outcome.rounds[-1] if outcome.rounds else None
    word = "step" if outcome.alone else "round"
    total = 0 if last is None else last.steps or last.round
    detail = f"{total:,} {word}{'' if total == 1 else 's'}"
    if outcome.setup_seconds is not None:
        detail += f", and {seconds_text(outcome.setup_seconds)} set-up"
    whole = sum(outcome.stage_seconds.values())
    spent = {stage: outcome.stage_seconds.get(stage, 0.0) for stage in _PROTECTION}
    told = [f"{stage} {seconds_text(seconds)}" for stage, seconds in spent.items() if seconds > _NOTABLE * whole]
    if told:
        detail += f"; of it {', '.join(told)}"
    if outcome.protected:
        detail += "; measured, and not covered by epsilon"
    return Card(label="time", value="–" if outcome.seconds is None else seconds_text(outcome.seconds), detail=detail)


def _traffic(outcome: RunOutcome) -> Card:
    up = sum(record.bytes_up for record in outcome.rounds)
    down = sum(record.bytes_down for record in outcome.rounds)
    replies = sum(record.senders for record in outcome.rounds)
    each = f"; {bytes_text(up / replies)} up per answer" if replies else ""
    planned = "; expected, not counted" if outcome.expected else ""
    detail = f"{bytes_text(up)} up, {bytes_text(down)} down{each}{planned}"
    return Card(label="traffic", value=bytes_text(up + down), detail=detail)


def _next(result: Result) -> str | None:
    """Return a command that goes a step further with the same protection and the same data."""
    if result.rounds[-1].steps is not None:
        return f"tacit ledger {result.folder}    # what was released" if result.folder else "tacit run --mode dp-sgd"
    if is_own(result.dataset):
        return f"tacit report {result.folder} --open    # this run as a page" if result.folder else None
    mode = mode_of(result.mode)
    same = f"tacit run --mode {mode.name}{' --dp' if mode.noise_if and result.privacy else ''} --data {result.dataset}"
    if result.at_chance and result.privacy:
        if result.dataset in mode.images:
            return f"{same}    # with the mode's own choice of model, features and clients"
        clients = max(result.clients, _MANY)
        return f"{same} --model logistic --clients {clients} --lr 0.5    # fewer parameters, more clients"
    if result.split == "iid":
        return f"{same} --split dirichlet:0.3    # clients whose data differ"
    return f"{same} --clients 100 --per-round 20 --rounds 30    # many small clients"


def _facts(history: History) -> Table:
    config, start, result = history.config, history.start, history.result
    model = result.model if result else start.model or config.model.name
    parameters = result.parameters if result else start.parameters
    rows: list[tuple[Cell, ...]] = [
        ("mode", config.mode),
        ("data", _data(history)),
        ("model", f"{model}" + ("" if parameters is None else f", {parameters:,} parameters")),
    ]
    if not history.alone:
        sampler = history.plan.sampler
        every = "all in every round" if sampler.expected == history.clients else f"{sampler.expected:g} per round"
        if every.endswith("per round") and type(sampler).__name__ == "Poisson":
            every += " in the mean (Poisson sampling)"
        rows.append(("clients", f"{history.clients:,}, {every}; split: {config.data.split or 'given'}"))
        if history.start.client_names:
            rows.append(("their names", names_text(history.start.client_names)))
    rows.append(("randomness", randomness(config.seed, simulation=start.simulation)))
    if start.time is not None:
        rows.append(("began", time_text(start.time)))
    return Table(columns=(), rows=rows)


def _data(history: History) -> str:
    examples = history.start.examples
    words = "the user's own" if history.own_data else history.start.dataset or history.config.data.name
    return words if not examples else f"{words}, {examples:,} training examples"
