"""FederatedScope's NbAFL on FEMNIST: its table of nine, with what its claims are worth."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.runs.result import Result
from tacit.studies.plan import with_values
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.nbafl_femnist.jobs import BASE, jobs
from tacit_labs.nbafl_femnist.measured import Measured, row
from tacit_labs.nbafl_femnist.page import findings, sections, tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.tasks.data import DataSet

    Holders = list[tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's on a CPU."""

    writers: int | None = None  # all by default
    rounds: int = BASE["federate"]["rounds"]
    seeds: int = 1
    model: str = BASE["model"]["name"]
    lr: float = BASE["optimizer"]["lr"]
    whole: bool = False  # whether what explains the differences is run too


FULL = Sizes()  # at 0.01, the job file's rate, LeNet without noise is at 71% after 300 rounds
ON_GPU = Sizes(seeds=3, whole=True)
QUICK = Sizes(writers=30, rounds=40)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run the table as large as ``settings`` ask."""
    return reproduce(QUICK if settings.quick else FULL if settings.gpu < 0 else ON_GPU, settings, progress)


def reproduce(sizes: Sizes, settings: Settings, progress: Progress) -> Reproduction:
    """Train plain averaging and every strength of noise, and compare."""
    from tacit.tasks import catalogue

    progress("FEMNIST")
    data = catalogue.load("femnist", folder=settings.data_dir)
    holders = _holders(data, sizes.writers)
    wanted = jobs(whole=sizes.whole)
    seeds = range(settings.seed, settings.seed + sizes.seeds)
    total = len(wanted) * sizes.seeds * sizes.rounds
    results: dict[str, list[Result]] = {name: [] for name in wanted}
    before = 0
    for seed in seeds:
        for name, job in wanted.items():
            tell = partial(_tell, progress, f"{name}, seed {seed}", before, total)
            results[name].append(learned(job, data, holders, sizes, settings, seed=seed, on_round=tell))
            before += sizes.rounds
    measured = Measured(
        rows={name: row(name, found) for name, found in results.items()},
        model=sizes.model,
        seeds=list(seeds),
        sizes=[len(labels) for _, labels in holders],
    )
    return Reproduction(
        settings=_said(sizes, measured),
        smaller=_smaller(sizes, settings),
        findings=findings(measured),
        sections=sections(measured),
        tables=tables(measured),
        data={"rows": [one.to_dict() for one in measured.rows.values()]},
    )


def _tell(progress: Progress, name: str, before: int, total: int, done: int) -> None:
    progress(f"{name}, rounds of all runs", done=before + done, total=total)


def _holders(data: DataSet, wanted: int | None) -> Holders:
    """Return the writers' examples, the first of them by name where fewer are wanted."""
    groups = data.groups
    assert groups is not None, "FEMNIST is by writer"
    count = len(data.group_names) if wanted is None else min(wanted, len(data.group_names))
    return [(data.train.features[groups == one], data.train.labels[groups == one]) for one in range(count)]


def learned(
    job: dict[str, Any],
    data: DataSet,
    holders: Holders,
    sizes: Sizes,
    settings: Settings,
    *,
    seed: int,
    on_round: Callable[[int], None],
) -> Result:
    """Run one job with one seed, or read what an earlier session finished of it; the data are loaded once for all."""
    from tacit.randomness import Randomness
    from tacit.runs.federation import Federation
    from tacit.studies.pool import finished
    from tacit.tasks import models

    own = {key: value for key, value in job.items() if key not in ("data", "model")}
    own = with_values(own, {"optimizer.lr": sizes.lr})
    if "nbafl" in own:  # the noise is that of all rounds, also where fewer are run: it grows with their number
        epsilon = own["nbafl"]["epsilon"] * sizes.rounds / BASE["federate"]["rounds"]
        own = with_values(own, {"nbafl.epsilon": epsilon})
    folder = settings.work(EXPERIMENT.name) / f"{zlib.crc32(repr((own, sizes, len(holders), seed)).encode()):08x}"
    held = finished(folder)
    if held is not None:
        on_round(sizes.rounds)
        return held
    network = models.build(
        sizes.model,
        shape=data.train.features.shape[1:],
        classes=data.classes,
        seed=Randomness.of(seed=seed).number("weights"),
    )
    federation = Federation(
        model=network,
        clients=holders,
        test=(data.test.features, data.test.labels),
        seed=seed,
        gpu=settings.gpu,
        **own,
    )
    return federation.fit(rounds=sizes.rounds, out=folder, observer=_watching(on_round), force=True)


def _watching(on_round: Callable[[int], None]) -> Any:
    from tacit.runs.observer import Silent
    from tacit.runs.result import RoundRecord

    class Watching(Silent):
        def round_done(self, record: RoundRecord) -> None:
            on_round(record.round)

    return Watching()


def _said(sizes: Sizes, measured: Measured) -> str:
    plain = measured.plain
    return (
        f"FEMNIST by writer, {plain.clients} writers of {min(measured.sizes)} to {max(measured.sizes)} images, 62 "
        f"classes; {sizes.model} ({plain.parameters:,} parameters); {plain.per_round} writers in each of "
        f"{sizes.rounds} rounds of one local epoch in batches of 10, SGD at rate {sizes.lr:g} with gradients within 5; "
        f"mu 0.01, w_clip 0.1; FederatedScope's algorithm (nbafl.compat=federatedscope); {_seeds(measured.seeds)}."
    )


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"mean of seeds {', '.join(map(str, seeds))}"


def _smaller(sizes: Sizes, settings: Settings) -> str:
    if not settings.quick:
        return ""
    return (
        f"{sizes.writers or 'All'} writers instead of all, {sizes.rounds} rounds instead of {FULL.rounds}, with the "
        f"noise of {FULL.rounds}. The model has learned less everywhere, and the mean of fewer writers has more noise."
    )


EXPERIMENT = Experiment(
    name="nbafl-femnist",
    title="Document 002: NbAFL on FEMNIST",
    source="FederatedScope's documentation of differential privacy: how to write NbAFL (Wei et al. 2020) with hooks "
    "and a noise injector, a command for FEMNIST (mu 0.01, constant 1, w_clip 0.1, epsilon 10), and accuracies at "
    "epsilon 10, 50 and 100 by delta 0.01, 0.17 and 0.76 (c = 3, 2, 1).",
    document="002_db2d91a2e6d390c6.txt",
    parts=("the nine accuracies", "the factor 2 of the noise", "the clip alone", "what the claims are worth"),
    quick="64 s of one core",
    full="16 min of one core; three seeds, and without the factor 2, on a GPU",
    run=run,
)
