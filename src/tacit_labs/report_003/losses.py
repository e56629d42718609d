"""The training loss that the report prints, by its author's public code: the last local epoch's alone.

Tacit records the mean over all local epochs. So the run is trained once more with a hook that looks at every batch.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tacit.randomness import Randomness
from tacit.runs.federation import Federation
from tacit.storage import write_atomically
from tacit.studies.plan import with_values
from tacit.tasks import catalogue, models
from tacit.training.hooks import Context
from tacit_labs.baselines import averaging
from tacit_labs.harness.experiment import Progress, Settings
from tacit_labs.harness.files import ADVICE
from tacit_labs.report_003 import private, quoted


def last_epochs(sizes: private.Sizes, settings: Settings, folder: Path, progress: Progress) -> list[float]:
    """Return, for each round at sigma 0.0001 and C 2, the mean loss of the batches of all clients' last local epoch."""
    kept = folder / "last-epochs.json"
    if kept.exists():
        known: list[float] = json.loads(kept.read_text())
        return known
    data = catalogue.load(sizes.data, folder=settings.data_dir)
    randomness = Randomness.of(seed=settings.seed)
    parts = np.array_split(randomness.stream("even parts").permutation(len(data.train.labels)), sizes.clients)
    network = models.build(
        sizes.model, shape=data.train.features.shape[1:], classes=data.classes, seed=randomness.number("weights")
    )
    settled = with_values({}, private.training(sizes.local_epochs) | private.noise(quoted.CURVE_LINE, private.CODE))
    with averaging.known():
        federation = Federation(
            model=network,
            clients=[(data.train.features[rows], data.train.labels[rows]) for rows in parts],
            test=(data.test.features, data.test.labels),
            seed=settings.seed,
            gpu=settings.gpu,
            server={"lr": 1.0},
            evaluate={"every": sizes.rounds, "train": False},
            **settled,
        )
        seen: dict[int, list[float]] = {}

        def look(context: Context) -> None:
            if context.loss is not None and context.epoch == sizes.local_epochs - 1:
                seen.setdefault(context.round_number, []).append(context.loss.item())
                progress("loss of last local epochs, rounds", done=context.round_number - 1, total=sizes.rounds)

        federation.register("on_batch_end", look)
        federation.fit(rounds=sizes.rounds, quiet=True)
    found = [float(np.mean(losses)) for _, losses in sorted(seen.items())]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, json.dumps(found).encode(), advice=ADVICE)
    return found
