"""The server of a real deployment: a run whose parties are SuperNodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from tacit.config.agreement import agreed
from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, RunError, TacitError
from tacit.flow import ClientId, Engine
from tacit.flower.engine import FlowerEngine, Seconds
from tacit.flower.link import Link, timed
from tacit.flower.log import LoggingObserver
from tacit.flower.simulation import Simulation, is_simulated
from tacit.modes.catalogue import mode_of, resolve
from tacit.modes.keys import holder_numbers
from tacit.modes.parts import minimum_clients, sampler_of
from tacit.parties.calls import Value
from tacit.parties.hello import IN_APP
from tacit.parties.settings import from_dotted
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.connection import Connection, Watch
from tacit.runs.folder import JOURNAL, config_of, records_of, unborn
from tacit.runs.job import Job
from tacit.runs.journal import Start
from tacit.runs.observer import Observer
from tacit.runs.progress import complete
from tacit.runs.remote_jobs import server_job
from tacit.runs.result import Result
from tacit.runs.run import Elsewhere, execute, resume
from tacit.storage import is_there
from tacit.training.examples import UserData

_SHOWN = 4  # settings that an error names


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The server's own model and test set.

    Attributes:
        model: makes the module.
        test: returns examples to test on.
    """

    model: Callable[[], nn.Module]
    test: Callable[[], UserData]


def server_app(
    *, model: Callable[[], nn.Module] | None = None, test: Callable[[], UserData] | None = None
) -> ServerApp:
    """Return the app of the server.

    Args:
        model: makes the module; by default the run's configuration names it.
        test: returns examples to test on after each round; with a model of your own.
    """
    if (model is None) != (test is None):
        raise ConfigError("Expected model and test together: whoever brings one has to bring the other.")
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        observer = LoggingObserver()
        serving = None if model is None or test is None else Serving(model=model, test=test)
        try:
            serve(grid, dict(context.run_config), serving=serving, observer=observer)
        except TacitError as error:
            observer.failed(error)
            raise

    return app


def configuration(settings: Mapping[str, Value]) -> RunConfig:
    """Return the configuration that a Flower app's run config gives, whose keys are dotted."""
    return from_dotted({**settings, "engine": "flower"})


def serve(
    grid: Grid,
    settings: Mapping[str, Value],
    *,
    serving: Serving | None = None,
    observer: Observer,
) -> Result:
    """Run the rounds over the nodes that are reached through ``grid``, or those that are left of a run that stopped.

    A run that its folder ``out`` holds and that was not finished goes on, if it has the same settings: from its
    checkpoint, with every charge it made, and with the randomness it began with. Any other run there is refused:
    another folder has to be named for a new one, as a new ledger knows nothing of what the same clients have spent.

    Args:
        grid: Flower's.
        settings: the run config.
        serving: the server's own model and test set; by default those that the settings name.
        observer: is told of every round.
    """
    config = resolve(configuration(settings))
    if config.out is None:
        observer.note("The run is not kept: set out, the server's folder for it.")
    else:
        config = config.model_copy(update={"out": config.out.absolute()})
        observer.note(f"The run is kept in {config.out}.")
    began = _beginning(config.out)
    deployed = None
    if serving is not None or not is_simulated(grid):
        deployed = Deployed(grid=grid, config=config, observer=observer)
        deployed.assemble()
    sizes = {} if deployed is None else deployed.sizes()
    notes = (IN_APP,) if deployed is not None and deployed.in_app else ()
    for note in notes:
        observer.note(note)

    def connect(job: Job) -> Connection:
        return Simulation(job, grid) if deployed is None else deployed

    def build(randomness: Randomness) -> Job:
        if serving is None:
            return jobs.build(config, randomness, observer, notes=notes)
        job = server_job(config, randomness, build=serving.model, test=serving.test(), sizes=sizes)
        return replace(job, notes=(*job.notes, *notes))

    if began is None:
        randomness = Randomness.of(seed=config.seed)
        return execute(
            lambda: build(randomness),
            randomness,
            config.out,
            observer,
            connect=connect,
            about=lambda: {"deployed": True, "told": {str(party): size for party, size in sizes.items()}},
        )
    assert config.out is not None
    again = Elsewhere(build=lambda randomness: _same(build(randomness), began, sizes), connect=connect)
    return resume(config.out, observer=observer, elsewhere=again)


def _beginning(out: Path | None) -> Start | None:
    """Return how the run in a folder began that is to go on, or None where there is none."""
    if out is None or not is_there(out / JOURNAL) or unborn(out):
        return None
    began = next((record for record in records_of(out) if isinstance(record, Start)), None)
    finished = complete(out) is not None
    if finished or began is None or not began.deployed:
        what = "a run that is complete" if finished else "a run that was no deployment"
        raise RunError(
            f"{out} holds {what}. Name another folder for a new one, such as by `flwr run . --run-config "
            f"'out=\"{out.name}-2\"'`: what its clients have spent there and what they spend in the new run adds up."
        )
    return began


def _same(job: Job, began: Start, sizes: Mapping[ClientId, int]) -> Job:
    """Return the job of a run that goes on; one that is another than the run in its folder is refused and closed."""
    try:
        _refuse_others(job.config, began, sizes)
    except BaseException:
        job.close()
        raise
    return job


def _refuse_others(config: Resolved, began: Start, sizes: Mapping[ClientId, int]) -> None:
    """Refuse settings, or numbers of examples, that are not those the run in a folder began with."""
    out = config.out
    assert out is not None
    theirs, ours = (agreed(one) for one in (config_of(out), config))
    differ = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
    if differ:
        named = "; ".join(f"{key} was {theirs.get(key)!r} and is {ours.get(key)!r}" for key in differ[:_SHOWN])
        raise RunError(
            f"{out} holds an unfinished run with other settings: {named}. Nothing was sent. Set them as they were "
            "to go on with it, or name another folder (out) for a new run, whose ledger begins anew."
        )
    told = {int(party): size for party, size in (began.told or {}).items()}
    for party, size in sizes.items():
        if told.get(party, size) != size:
            raise RunError(
                f"Client {party} holds {size} examples, and held {told[party]} when the run in {out} began: what it "
                "has spent was accounted by those. Bring the same data back, or name another folder (out)."
            )


class Deployed:
    """The way to parties on SuperNodes: they are greeted before the job is built, and stay when it ends."""

    name = "flower"

    def __init__(self, *, grid: Grid, config: Resolved, observer: Observer) -> None:
        self._watch: Watch | None = None
        self._observer = observer
        clients = config.federate.clients
        if clients is None:
            raise ConfigError("federate.clients has to be set: how many clients the federation has.")
        if config.federate.drop:
            raise ConfigError(
                f"federate.drop={config.federate.drop:g} simulates drop-outs, and these clients are real. Leave it out."
            )
        holders: tuple[ClientId, ...] = holder_numbers(config.paillier)[0] if mode_of(config.mode).encrypted else ()
        self._minimum = minimum_clients(config, sampler_of(config, clients))
        engine = FlowerEngine(
            grid=grid,
            deadline=config.flower.deadline,
            note=self._note,
            on_reply=self._replied,
            on_trip=self._charge,
        )
        parties = frozenset(range(clients)) | frozenset(holders)
        self.link = Link(engine=engine, config=config, parties=parties, note=self._note)

    def assemble(self) -> None:
        """Wait for the nodes and find out who they are."""
        self.link.assemble(minimum_clients=self._minimum)

    def sizes(self) -> dict[ClientId, int]:
        """Return how many examples clients hold, of those that told."""
        told = self.link.introductions.items()
        return {party: said.examples for party, said in told if party >= 0 and said.examples is not None}

    @property
    def in_app(self) -> bool:
        """Whether a client's data are where the app that this server sends runs."""
        return any(said.in_app for said in self.link.introductions.values())

    @contextmanager
    def open(self, job: Job, randomness: Randomness, watch: Watch) -> Iterator[Engine]:
        """Return the engine; the nodes are there already."""
        self._watch = watch
        yield self.link

    def _charge(self, wall: float, worked: Sequence[Seconds]) -> None:
        if self._watch is not None:  # greetings belong to no round
            timed(self._watch.stopwatch, None)(wall, worked)

    def _note(self, text: str) -> None:
        """Tell the operator, or the run, which knows what of a round may be told."""
        (self._observer if self._watch is None else self._watch).note(text)

    def _replied(self) -> None:
        if self._watch is not None:
            self._watch.on_reply()
