"""The server of a real deployment: a run whose parties are SuperNodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import Grid
from torch import nn

from tacit.engines.flower import FlowerEngine
from tacit.engines.flower.app import Value
from tacit.engines.flower.engine import Seconds
from tacit.errors import ConfigError
from tacit.flow import ClientId, Engine
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.config import RunConfig, from_mapping
from tacit.runs.connection import Watch
from tacit.runs.defaults import resolve
from tacit.runs.flower.link import Link, timed
from tacit.runs.flower.own import server_job
from tacit.runs.folder import JOURNAL
from tacit.runs.job import Job
from tacit.runs.keys import holder_numbers
from tacit.runs.modes import minimum_clients, sampler_of
from tacit.runs.observer import Observer
from tacit.runs.overrides import put
from tacit.runs.result import Result
from tacit.runs.start import execute
from tacit.training.examples import Examples


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The server's own model and test set.

    Attributes:
        model: makes the module.
        test: returns examples to test on.
    """

    model: Callable[[], nn.Module]
    test: Callable[[], Examples]


def configuration(settings: Mapping[str, Value]) -> RunConfig:
    """Return the configuration that a Flower app's run config gives, whose keys are dotted."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        put(nested, key, value)
    put(nested, "engine", "flower")
    return from_mapping(nested)


def serve(
    grid: Grid,
    settings: Mapping[str, Value],
    *,
    serving: Serving | None = None,
    observer: Observer,
    run_id: int = 0,
) -> Result:
    """Run the rounds over the nodes that are reached through ``grid``.

    Args:
        grid: Flower's.
        settings: the run config.
        serving: the server's own model and test set; by default those that the settings name.
        observer: is told of every round.
        run_id: Flower's number of the run; where the run's folder holds another run, the new folder's name ends in it.
    """
    config = _in_new_folder(configuration(settings), run_id, observer)
    deployed = Deployed(grid=grid, config=config, observer=observer)
    deployed.assemble()
    randomness = Randomness.of(seed=config.seed)

    def build() -> Job:
        if serving is None:
            return jobs.build(config, randomness, observer)
        told = deployed.link.introductions
        sizes = {party: said.examples for party, said in told.items() if party >= 0 and said.examples is not None}
        return server_job(config, randomness, build=serving.model, test=serving.test(), sizes=sizes)

    return execute(build, randomness, config.out, observer, connect=lambda _: deployed)


def _in_new_folder(config: RunConfig, run_id: int, observer: Observer) -> RunConfig:
    """Return the configuration with a whole path for its folder, a free one: an app is often run more than once."""
    if config.out is None:
        observer.note("The run is not kept: set out, the server's folder for it.")
        return config
    out = config.out.absolute()
    if (out / JOURNAL).exists():
        out = out.with_name(f"{out.name}-{run_id}")
    if out != config.out:
        observer.note(f"The run is kept in {out}.")
    return config.model_copy(update={"out": out})


class Deployed:
    """The way to parties on SuperNodes: they are greeted before the job is built, and stay when it ends."""

    name = "flower"

    def __init__(self, *, grid: Grid, config: RunConfig, observer: Observer) -> None:
        self._watch: Watch | None = None
        resolved = resolve(config)
        clients = resolved.federate.clients
        if clients is None:
            raise ConfigError("federate.clients has to be set: how many clients the federation has.")
        if config.federate.drop:
            raise ConfigError(
                f"federate.drop={config.federate.drop:g} simulates drop-outs, and these clients are real. Leave it out."
            )
        holders: tuple[ClientId, ...] = holder_numbers(config.paillier)[0] if config.mode == "paillier" else ()
        self._minimum = minimum_clients(resolved, sampler_of(resolved, clients))
        engine = FlowerEngine(
            grid=grid,
            deadline=config.flower.deadline,
            note=observer.note,
            on_reply=self._replied,
            on_trip=self._charge,
        )
        parties = frozenset(range(clients)) | frozenset(holders)
        self.link = Link(engine=engine, config=config, parties=parties, note=observer.note)

    def assemble(self) -> None:
        """Wait for the nodes and find out who they are."""
        self.link.assemble(minimum_clients=self._minimum)

    @contextmanager
    def open(self, job: Job, randomness: Randomness, watch: Watch) -> Iterator[Engine]:  # noqa: ARG002
        """Return the engine; the nodes are there already."""
        self._watch = watch
        yield self.link

    def _charge(self, wall: float, worked: Sequence[Seconds]) -> None:
        if self._watch is not None:  # greetings belong to no round
            timed(self._watch.stopwatch, None)(wall, worked)

    def _replied(self) -> None:
        if self._watch is not None:
            self._watch.on_reply()
