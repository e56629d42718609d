"""What is around training in a round: 100 clients of 60 images with the CNN of the MNIST lab, clipped and with noise.

A round here is what the server and the clients compute: the task is packed, the cohort trains, updates are clipped and
added up, noise is added, the model moves. Sampling, the ledger and files are not in it.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, cast

import numpy as np
import torch

from tacit import wire
from tacit.federated.plan import Plan
from tacit.federated.round import LocalClients
from tacit.flow import InProcessEngine, drive
from tacit.mechanisms.gaussian import GaussianMechanism
from tacit.protocols.clear import ClearSum
from tacit.randomness import Randomness
from tacit.tasks import models
from tacit.training.batches import Holdings
from tacit.training.forms import cohort_trainer
from tacit.training.settings import LocalTraining, cross_entropy

_CLIENTS, _EXAMPLES, _BATCH = 100, 60, 10


class _Plan:
    """As much of a plan as local clients read."""

    private = True

    def __init__(self, mechanism: GaussianMechanism, protocol: ClearSum) -> None:
        self.mechanism, self.protocol = mechanism, protocol


def measure(device: torch.device, *, repeats: int) -> dict[str, Any]:
    """Return milliseconds of a round, of its training alone, and of what is around it, the best of several rounds."""
    draw = torch.Generator().manual_seed(1)
    features = torch.randn(_CLIENTS * _EXAMPLES, 1, 28, 28, generator=draw).to(device)
    labels = torch.randint(0, 10, (len(features),), generator=draw).to(device)
    module = models.build("cnn", shape=(1, 28, 28), classes=10, seed=1).to(device)
    rows = np.split(np.arange(len(features)), _CLIENTS)
    trainer = cohort_trainer(
        module=module,
        holdings=Holdings(features=features, labels=labels, rows=rows),
        settings=LocalTraining(epochs=1, batch_size=_BATCH, lr=0.05),
        loss=cross_entropy,
    )
    mechanism = GaussianMechanism(clip_bound=1.0, noise_multiplier=1.0, expected_clients=float(_CLIENTS))
    protocol = ClearSum(minimum_clients=0, accepted=mechanism.accepted)
    randomness = Randomness.of(seed=1)
    clients = LocalClients(
        plan=cast(Plan, _Plan(mechanism, protocol)),
        trainer=trainer,
        examples=[_EXAMPLES] * _CLIENTS,
        randomness=randomness,
    )
    engine, cohort = InProcessEngine(answer=clients.answer), list(range(_CLIENTS))
    model = trainer.layout.read(module).cpu().numpy()

    def whole(number: int) -> None:
        task = wire.Task(turn=wire.Turn(round_number=number), model=model, extras=mechanism.public_state())
        total = drive(protocol.server(cohort, task, mechanism.length(len(model))), engine)
        mechanism.on_server(total.vector, randomness.within("server", number), clients=_CLIENTS)

    def alone(number: int) -> None:
        keys = np.arange(_CLIENTS) + 1_000 * number
        if trainer.adds:
            trainer.train_rows(model, cohort, keys, number, lambda *_: None)
        else:
            trainer.train(model, cohort, keys, number, lambda *_: None)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    best = {"round": np.inf, "train": np.inf}
    with closing(trainer):
        for number in range(1, repeats + 2):  # the first warms up
            for name, action in (("round", whole), ("train", alone)):
                start = time.perf_counter()
                action(number)
                if number > 1:
                    best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return {"form": trainer.form, **best, "around": best["round"] - best["train"]}
