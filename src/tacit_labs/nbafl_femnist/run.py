"""NbAFL on FEMNIST: the table of nine, with the epsilon that holds beside the one that is claimed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.runs.result import Result
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.nbafl_femnist.jobs import BASE, COMPATS, PLAIN, Compat, Point, plain_settings, points
from tacit_labs.nbafl_femnist.measured import Measured, row
from tacit_labs.nbafl_femnist.page import findings, sections, tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.tasks.data import DataSet

    Holders = list[tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's."""

    writers: int | None = None  # all by default
    rounds: int = 20
    local_epochs: int = 5
    seeds: int = 2
    compats: tuple[Compat, ...] = COMPATS


FULL = Sizes()
QUICK = Sizes(writers=30, rounds=10, local_epochs=2, seeds=1, compats=("federatedscope",))


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run the table as large as ``settings`` ask."""
    return reproduce(QUICK if settings.quick else FULL, settings, progress)


def reproduce(sizes: Sizes, settings: Settings, progress: Progress) -> Reproduction:
    """Train plain FedAvg and every cell of the table, and compare."""
    from tacit.tasks import catalogue

    progress("FEMNIST")
    data = catalogue.load("femnist", folder=settings.data_dir)
    holders = _holders(data, sizes.writers)
    jobs: list[tuple[str, dict[str, Any], Point | None]] = [(PLAIN, plain_settings(), None)]
    jobs += [(point.name, point.settings(), point) for point in points(sizes.compats)]
    total = len(jobs) * sizes.seeds * sizes.rounds
    rows = {}
    for place, (name, job, point) in enumerate(jobs):
        results = []
        for number in range(sizes.seeds):
            before = (place * sizes.seeds + number) * sizes.rounds
            results.append(
                _learned(
                    job,
                    data,
                    holders,
                    sizes,
                    settings,
                    seed=settings.seed + number,
                    on_round=partial(_tell, progress, name, before, total),
                )
            )
        rows[name] = row(name, results, point)
    measured = Measured(
        rows=rows,
        compats=sizes.compats,
        seeds=[settings.seed + number for number in range(sizes.seeds)],
        smallest=min(len(labels) for _, labels in holders),
        largest=max(len(labels) for _, labels in holders),
        clip=float(BASE["nbafl"]["w_clip"]),
    )
    return Reproduction(
        settings=_said(sizes, measured),
        smaller=_smaller(sizes),
        findings=findings(measured),
        sections=sections(measured),
        tables=tables(measured),
        data={"rows": [one.to_dict() for one in rows.values()]},
    )


def _tell(progress: Progress, name: str, before: int, total: int, done: int) -> None:
    progress(f"{name}, rounds of all cells", done=before + done, total=total)


def _holders(data: DataSet, wanted: int | None) -> Holders:
    """Return the writers' examples, the first of them by name where fewer are wanted."""
    groups = data.groups
    assert groups is not None, "FEMNIST is by writer"
    count = len(data.group_names) if wanted is None else min(wanted, len(data.group_names))
    return [(data.train.features[groups == one], data.train.labels[groups == one]) for one in range(count)]


def _learned(
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
    own["train"] = job["train"] | {"local_epochs": sizes.local_epochs}
    own["evaluate"] = job["evaluate"] | {"every": max(1, sizes.rounds // 4)}
    folder = settings.work(EXPERIMENT.name) / f"{zlib.crc32(repr((own, sizes, len(holders), seed)).encode()):08x}"
    held = finished(folder)
    if held is not None:
        on_round(sizes.rounds)
        return held
    network = models.build(
        job["model"]["name"],
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
    scales = " and ".join({"federatedscope": "FederatedScope's", "paper": "the paper's"}[one] for one in sizes.compats)
    return (
        f"FEMNIST by writer, {plain.clients} writers of {measured.smallest} to {measured.largest} images, 62 "
        f"classes; the CNN with two convolutions ({plain.parameters:,} parameters); everyone in each of "
        f"{sizes.rounds} rounds of {sizes.local_epochs} local epochs; weights clipped to L2 norm {measured.clip:g} on "
        f"the client, mu 0.01; noise at {scales} scale; {_seeds(measured.seeds)}."
    )


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"mean of seeds {', '.join(map(str, seeds))}"


def _smaller(sizes: Sizes) -> str:
    if sizes == FULL:
        return ""
    return (
        f"{sizes.writers or 'All'} writers instead of all, {sizes.rounds} rounds of {sizes.local_epochs} local epochs "
        f"instead of {FULL.rounds} of {FULL.local_epochs}, one seed instead of {FULL.seeds}, and FederatedScope's "
        "scale of the noise only. The model has learned less everywhere, and the noise, which grows with the rounds, "
        "is smaller."
    )


EXPERIMENT = Experiment(
    name="nbafl-femnist",
    title="NbAFL on FEMNIST",
    source="FederatedScope's documentation of differential privacy: NbAFL (Wei et al. 2020) on 5% of FEMNIST with a "
    "CNN of two convolutions, its accuracies at epsilon 10, 50 and 100 by delta 0.01, 0.17 and 0.76 (c = 3, 2, 1). The "
    "page's command has mu 0.01 and clip 0.1.",
    run=run,
)
