"""Flower's simulation engine (Ray), tuned as its documentation advises, FedAvg and nothing else.

One Ray actor a core, one torch thread an actor; each actor reads the data once and keeps them and the model.
``run_simulation`` drives, in this process and with messages in memory, the engine behind ``flwr run`` too.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import TYPE_CHECKING

import torch

from tacit_labs.bench.simulation.peers.common import CNN, client_data, cores, train_epoch
from tacit_labs.bench.simulation.peers.jobs import JOBS, Answer, Job

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.serverapp import Grid, ServerApp


@cache
def actor_model() -> CNN:
    """Return the model of this actor, built once: every client overwrites its parameters."""
    torch.set_num_threads(1)
    return CNN()


def train(message: Message, context: Context) -> Message:
    """Train one client; actors find this function by its name."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    config = message.content.config_records["config"]
    job = JOBS[str(config["job"])]
    model = actor_model()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    images, labels = client_data(str(config["data"]), job.clients)
    partition = int(context.node_config["partition-id"])
    train_epoch(model, images[partition], labels[partition], job)
    metrics = MetricRecord({"num-examples": len(labels[partition])})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


def server_app(job: Job, rounds: int, data: str, seconds: list[float]) -> ServerApp:
    """Build a server that samples, sends, receives and averages with Flower's FedAvg, timing each round."""
    from flwr.app import ArrayRecord, ConfigRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()

    @app.main()
    def main(grid: Grid, _context: Context) -> None:
        torch.manual_seed(0)
        strategy = FedAvg(
            fraction_train=job.cohort / job.clients,
            min_train_nodes=job.cohort,  # it takes its fraction of the nodes connected so far, maybe not all
            min_available_nodes=job.clients,
            fraction_evaluate=0.0,
        )
        arrays = ArrayRecord(CNN().state_dict())
        config = ConfigRecord({"job": job.name, "data": data})
        for number in range(1, rounds + 1):
            start = time.perf_counter()
            messages = strategy.configure_train(number, arrays, config, grid)
            replies = list(grid.send_and_receive(messages))
            averaged, _ = strategy.aggregate_train(number, replies)
            seconds.append(time.perf_counter() - start)
            trained = sum(not reply.has_error() for reply in replies)
            if averaged is None or trained != job.cohort:
                raise RuntimeError(f"round {number}: {trained} of {job.cohort} clients returned an update")
            arrays = averaged

    return app


def run(job: Job, rounds: int, data: str) -> Answer:
    """Time the rounds."""
    os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0")  # before flwr and ray are imported
    import flwr
    from flwr.clientapp import ClientApp
    from flwr.simulation import run_simulation

    client_app = ClientApp()
    client_app.train()(train)
    actors = cores()
    seconds: list[float] = []
    run_simulation(
        server_app=server_app(job, rounds, data, seconds),
        client_app=client_app,
        num_supernodes=job.clients,
        backend_config={
            "init_args": {"num_cpus": actors, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    notes = f"run_simulation, {actors} Ray actors of one thread; the first round includes starting Ray"
    return Answer(version=flwr.__version__, seconds=seconds, notes=notes)
