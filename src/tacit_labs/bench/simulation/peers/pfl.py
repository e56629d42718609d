"""pfl-research's simulation with its PyTorch backend, tuned as its documentation advises.

One worker process a core (its torch.distributed mode, gloo on the CPU), one torch thread a worker, users'
data in memory as tensors. The side starts its own workers.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from tacit_labs.bench.simulation.peers.common import CNN, client_data, cores
from tacit_labs.bench.simulation.peers.jobs import Answer, Job

RANK, ADDRESSES = "PFL_WORKER_RANK", "PFL_WORKER_ADDRESSES"  # pfl's own names


def run(job: Job, rounds: int, data: str) -> Answer | None:
    """Start the workers, or be one of them; rank 0 answers for all."""
    if RANK in os.environ:
        return work(job, rounds, data)
    sys.exit(launch(cores()))


def launch(workers: int) -> int:
    """Run this side once per worker; rank 0 keeps standard output. Returns the worst exit status."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        ADDRESSES: ",".join(f"127.0.0.1:{port + rank}" for rank in range(workers)),
        "PFL_PYTORCH_DEVICE": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "tacit_labs.bench.simulation.peers", *sys.argv[1:]],
            env=os.environ | shared | {RANK: str(rank)},
            stdout=None if rank == 0 else subprocess.DEVNULL,
        )
        for rank in range(workers)
    ]
    return max(abs(process.wait()) for process in processes)


def work(job: Job, rounds: int, data: str) -> Answer | None:
    """Train as one worker of the simulation."""
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel
    from torch import Tensor
    from torch.nn import functional as F

    class Network(CNN):
        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            self.train()
            return F.cross_entropy(self(x), y)

        def metrics(self, *_: Tensor) -> dict[str, Any]:
            """Return nothing: pfl evaluates in iteration 0 whatever its frequency, and only training counts."""
            return {}

    class Clock(TrainingProcessCallback):
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
            self.times.append(time.perf_counter())
            return Metrics()

        def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
            self.times.append(time.perf_counter())
            return False, Metrics()

    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002 - pfl seeds itself from NumPy's global state
    torch.manual_seed(0)
    images, labels = client_data(data, job.clients)

    def user(client: int) -> PyTorchTensorDataset:
        order = torch.randperm(len(labels[client]))  # pfl walks a user's data in order
        return PyTorchTensorDataset((images[client][order], labels[client][order]))

    def sampled() -> Iterator[int]:
        """Yield users of one random cohort after the other; pfl's own samplers cycle in order or repeat users."""
        rng = np.random.default_rng(1)  # the same in every worker: pfl deals the users out
        while True:
            yield from rng.choice(job.clients, job.cohort, replace=False).tolist()

    dataset = FederatedDataset(user, sampled().__next__)
    network = Network()
    model = PyTorchModel(
        network,
        local_optimizer_create=partial(torch.optim.SGD, momentum=job.momentum),
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    clock = Clock()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=job.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(dataset, dataset, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_batch_size=job.batch, local_num_epochs=1, local_learning_rate=job.lr
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    if os.environ[RANK] != "0":
        return None
    notes = f"{os.environ[ADDRESSES].count(',') + 1} torch.distributed (gloo) workers of one thread"
    seconds = [after - before for before, after in pairwise(clock.times)]
    return Answer(version=version("pfl"), seconds=seconds, notes=notes)
