"""What Flower's engine costs: rounds without training, and the same job in one process and on Flower's simulation.

* overhead: seconds of a round in which nobody trains (the CNN's 21,840 numbers go out and come back), with 3 and 50
  clients: in this process; on Flower's simulation by Tacit; and on the same simulated nodes by a bare Flower app that
  sends the model, gets it back and averages with FedAvg, once with Flower's own pauses between looks for replies
  and once with Tacit's shorter ones. All are taken in turn on the same grid. What Tacit's own code adds to a Flower
  round is the difference to the last.
* start: seconds of a whole command, `tacit run --rounds 1` on MNIST with 10 clients, in one process and by
  `engine=flower`, where sites are processes.
* job: MNIST, 1,000 clients of 60 examples, 100 of them a round, batches of 10: seconds of a warm round in one process
  and by `engine=flower`, the same configuration.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from tacit.config.run_config import RunConfig
from tacit.federated.plan import Plan
from tacit.federated.round import Finish, LocalClients, broadcast, release, sum_flow
from tacit.flow import ClientId, Engine, InProcessEngine, drive
from tacit.flower.engine import FIRST_PAUSE, LONGEST_PAUSE, FlowerEngine
from tacit.flower.envelope import client_app
from tacit.flower.simulation import simulated
from tacit.modes.catalogue import plan_of, resolve
from tacit.parties.calls import Answer, Call
from tacit.randomness import Randomness
from tacit.vectors import Vector
from tacit.wire import Turn

PARAMETERS = 21_840
Receive = Callable[[Iterable[Message]], Iterable[Message]]


class NoTraining:
    """A trainer that hands the model back as it came."""

    workers = 1

    def train(
        self, model: Vector, clients: Sequence[ClientId], keys: NDArray[np.int64], round_number: int, finish: Finish
    ) -> None:
        """Finish every client with an update of zeros."""
        del keys, round_number
        for client in clients:
            finish(client, np.zeros_like(model), 0.5)


def _plan(clients: int) -> Plan:
    return plan_of(resolve(RunConfig(federate={"clients": clients})), clients)


def _clients(clients: int) -> LocalClients:
    return LocalClients(
        plan=_plan(clients),
        trainer=NoTraining(),
        examples=[60] * clients,
        randomness=Randomness.of(seed=1),
    )


@dataclass(frozen=True)
class Idle:
    """A node that does all a client does but training."""

    clients: int

    def __call__(self, call: Call) -> Answer:
        """Answer as a client does."""
        return Answer(frame=_clients(self.clients).answer({call.party: call.frame})[call.party])


def _both(clients: int) -> ClientApp:
    """Return an app that answers Tacit's messages, and bare ones as a Flower app does that does not train."""
    app = client_app(Idle(clients))

    @app.train("bare")
    def bare(message: Message, context: Context) -> Message:
        del context
        arrays = message.content.array_records["arrays"].to_numpy_ndarrays()
        metrics = MetricRecord({"num-examples": 60, "loss": 0.5})
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def _tacit_round(engine: Engine, clients: int, number: int) -> None:
    plan = _plan(clients)
    model = np.zeros(PARAMETERS, np.float32)
    turn = Turn(round_number=number)
    cohort = list(range(clients))
    task = broadcast(plan, plan.mechanism, model, turn)
    total = drive(sum_flow(plan, plan.mechanism, cohort, task), engine)
    release(plan, plan.mechanism, total, task, {}, Randomness.of(seed=1))


def _bare_round(grid: Grid, strategy: FedAvg, receive: Receive) -> None:
    record = ArrayRecord({"model": Array(np.zeros(PARAMETERS, np.float32))})
    content = RecordDict({"arrays": record, "config": ConfigRecord({"server-round": 1})})
    messages = [Message(content, node, "train.bare") for node in grid.get_node_ids()]
    arrays, _ = strategy.aggregate_train(1, receive(messages))
    assert arrays is not None


def _looking_as_often(grid: Grid) -> Receive:
    """Return send_and_receive with the pauses of Tacit's engine: Flower's own looks for replies every 0.1 s."""

    def receive(messages: Iterable[Message]) -> list[Message]:
        waiting = set(grid.push_messages(messages))
        replies: list[Message] = []
        pause = FIRST_PAUSE
        while waiting:
            arrived = list(grid.pull_messages(list(waiting)))
            replies += arrived
            waiting -= {message.metadata.reply_to_message_id for message in arrived}
            pause = FIRST_PAUSE if arrived else min(1.3 * pause, LONGEST_PAUSE)
            time.sleep(pause if waiting else 0)
        return replies

    return receive


def _middle(rounds: dict[str, Callable[[int], None]], repeats: int) -> dict[str, float]:
    """Return the middle half's mean seconds of each round, taken in turn after one that warms up.

    Not the best: Flower's simulation looks for messages every 0.1 s, and how a round falls into that is chance.
    """
    seconds: dict[str, list[float]] = {name: [] for name in rounds}
    for number in range(repeats + 1):
        for name, go in rounds.items():
            start = time.perf_counter()
            go(number + 1)
            if number:
                seconds[name].append(time.perf_counter() - start)
    return {
        name: statistics.mean(sorted(each)[repeats // 4 : -(repeats // 4) or None]) for name, each in seconds.items()
    }


def overhead(clients: int, repeats: int) -> dict[str, Any]:
    """Measure rounds without training."""
    here = InProcessEngine(answer=_clients(clients).answer)
    row: dict[str, Any] = {"clients": clients}
    row |= _middle({"in process": lambda number: _tacit_round(here, clients, number)}, repeats)
    strategy = FedAvg()
    with simulated(_both(clients), nodes=clients) as grid:
        engine = FlowerEngine(grid=grid, deadline=60.0)
        engine.nodes |= dict(enumerate(grid.get_node_ids()))
        row |= _middle(
            {
                "bare Flower": lambda _: _bare_round(grid, strategy, grid.send_and_receive),
                "bare Flower, looking as often": lambda _: _bare_round(grid, strategy, _looking_as_often(grid)),
                "Tacit on Flower": lambda number: _tacit_round(engine, clients, number),
            },
            repeats,
        )
    row["Flower over in process"] = row["Tacit on Flower"] / row["in process"]
    row["Tacit adds"] = row["Tacit on Flower"] / row["bare Flower, looking as often"] - 1
    milliseconds = {name: f"{1e3 * value:.1f} ms" for name, value in row.items() if isinstance(value, float)}
    shown = ", ".join(f"{name} {milliseconds[name]}" for name in list(row)[1:5])
    print(f"{clients} clients: {shown}; Tacit adds {100 * row['Tacit adds']:+.1f}%", flush=True)
    return row


def job(rounds: int) -> dict[str, Any]:
    """Measure one job in process and on Flower's simulation."""
    import tacit

    row: dict[str, Any] = {}
    for engine in ("in-process", "flower"):
        config = RunConfig(
            engine=engine,
            seed=1,
            federate={"clients": 1000, "per_round": 100, "rounds": rounds},
            train={"batch_size": 10},
            evaluate={"every": 10_000, "train": False},
        )
        records = tacit.run(config).rounds
        seconds = [record.lasted - record.seconds["evaluate"] for record in records]
        row[engine] = {"seconds": seconds, "best": min(seconds[len(seconds) // 2 :]), "stages": records[-1].seconds}
        print(f"{engine}: {row[engine]['best']:.3f} s per round", flush=True)
    row["ratio"] = row["flower"]["best"] / row["in-process"]["best"]
    print(f"in process {row['ratio']:.1f}x the rounds per second", flush=True)
    return row


def start(repeats: int) -> dict[str, float]:
    """Measure a command from its first to its last moment, the best of some."""
    row: dict[str, float] = {}
    for engine in ("in-process", "flower"):
        words = ["run", "--engine", engine, "--rounds", "1", "--clients", "10", "--seed", "1", "--quiet"]
        seconds = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as place:
                begun = time.perf_counter()
                subprocess.run([sys.executable, "-m", "tacit", *words, "--out", f"{place}/run"], check=True)
                seconds.append(time.perf_counter() - begun)
        row[engine] = min(seconds)
        print(f"{engine}: {row[engine]:.1f} s for one round, from the command to its end", flush=True)
    return row


def measure(*, quick: bool, only: str | None) -> dict[str, Any]:
    """Return all parts, or ``only`` the one of that name."""
    record: dict[str, Any] = {"cores": os.cpu_count()}
    if only in (None, "start"):
        record["start"] = start(1 if quick else 3)
    if only in (None, "overhead"):
        sizes = (3,) if quick else (3, 50)
        record["overhead"] = [overhead(clients, 4 if quick else 60) for clients in sizes]
    if only in (None, "job"):
        record["job"] = job(2 if quick else 8)
    return record
