"""The report of 000 again: noisy averages, Gaussian mechanisms, Paillier's panels, and encrypted learning."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.crypto import paillier
from tacit.limits import cores
from tacit_labs.harness.encrypted import WAYS, Epoch, Way, learn
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.measuring import asked, here
from tacit_labs.report_000 import mechanisms, page_paillier, page_private, panels, private, quoted
from tacit_labs.report_000.checks import check

_DATA = {"mnist": "MNIST", "digits": "Digits of 8 x 8 pixels"}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's."""

    private: private.Sizes = field(default_factory=private.Sizes)
    panels: panels.Sizes = field(default_factory=panels.Sizes)
    random: int = 20  # random pairs per check
    safe_bits: int = 2048
    ways: tuple[Way, ...] = WAYS  # the first is in the clear
    rounds: int = quoted.ROUNDS  # of encrypted learning
    clients: int = quoted.CLIENTS
    local_epochs: int = quoted.LOCAL_EPOCHS
    data: Mapping[str, Any] = field(default_factory=lambda: {"name": "mnist"})


FULL = Sizes()
QUICK = Sizes(
    private=private.Sizes(
        data="digits",
        model="mlp",
        tensors=6,
        clips=(0.1, 0.5, 0.9),
        sigmas=(0.1, 0.4),
        workers=1,
    ),
    panels=panels.Sizes(lengths=tuple(range(50, 1001, 50)), settled=10, update_keys=(1024, 2048), sample=3, repeats=1),
    random=5,
    ways=(WAYS[0], WAYS[1], WAYS[2]),
    rounds=2,
)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run the report's experiments as large as ``settings`` ask."""
    return reproduce(QUICK if settings.quick else FULL, settings, progress)


def reproduce(sizes: Sizes, settings: Settings, progress: Progress) -> Reproduction:
    """Train, measure and compare."""
    mark = zlib.crc32(repr((sizes.private, settings.seed, settings.gpu)).encode())
    learned = private.measure(sizes.private, settings, settings.work(NAME) / f"{mark:08x}", progress)
    bonus = mechanisms.compute()
    checks = {}
    for bits in (sizes.panels.key_bits, sizes.safe_bits):
        progress(f"correctness at {bits} bits")
        public, secret = paillier.generate(bits=bits, insecure_key_size=True)
        checks[bits] = check(public, secret, random=sizes.random)
    rows, absent = asked(panels.JOBS, lambda backends: list(panels.jobs(sizes.panels, backends)), progress)
    timed = panels.timed(sizes.panels, rows, absent)
    epochs = _epochs(sizes, settings, progress)
    computer = here()
    tables = {
        "grid-coded": page_private.accuracies(learned, private.CODED),
        "grid-meant": page_private.accuracies(learned, private.MEANT),
        "checks": page_paillier.check_table(checks),
        "panels": page_paillier.panel_table(timed),
        "learning": page_paillier.learning_table(epochs),
        "update": page_paillier.update_table(timed),
    }
    return Reproduction(
        settings=_said(sizes, settings, learned.curves[private.PLAIN].parameters) + " " + computer.words(),
        smaller=_smaller(sizes),
        findings=(
            *page_private.findings(learned),
            *page_paillier.findings(timed, checks, epochs, computer.backend),
        ),
        sections=(
            *page_private.sections(learned),
            mechanisms.section(bonus),
            *page_paillier.sections(timed, checks, epochs),
        ),
        tables=tables,
        sheets={"grid": page_private.grid_sheet(learned), "nine-panels": page_paillier.panel_sheet(timed)},
        data={
            "machine": computer.to_dict(),
            "private": learned.to_dict(),
            "mechanisms": bonus.to_dict(),
            "paillier": timed.to_dict(),
            "learning": [vars(one) for one in epochs],
        },
    )


def _epochs(sizes: Sizes, settings: Settings, progress: Progress) -> list[Epoch]:
    made = []
    for place, way in enumerate(sizes.ways):
        progress(f"encrypted learning: {way.name}", done=place, total=len(sizes.ways))
        made.append(
            learn(
                way,
                rounds=sizes.rounds,
                clients=sizes.clients,
                values=private.training(sizes.local_epochs),
                workers=cores(),
                seed=settings.seed,
                data=dict(sizes.data) | ({} if settings.data_dir is None else {"folder": str(settings.data_dir)}),
            )
        )
    return made


def _said(sizes: Sizes, settings: Settings, parameters: int) -> str:
    own = sizes.private
    return (
        f"{_DATA.get(own.data, own.data)}, model `{own.model}`, {own.clients} clients with data mixed evenly, all of "
        f"them in each of {own.rounds} rounds, {own.local_epochs} local epoch{'s' * (own.local_epochs > 1)} per round "
        f"in batches of {quoted.BATCH} at rate {quoted.RATE:g} with momentum {quoted.MOMENTUM:g}, seed "
        f"{settings.seed}; delta {quoted.DELTA:g}, the unit is a client, add-remove. What the report does not state, "
        f"clients, local epochs, rate, batches, model ({parameters:,} parameters in {own.tensors} tensors) and the "
        f"grid's steps, is from its author's public code (`{quoted.REPOSITORY}`). The length of the key in encrypted "
        "learning is in neither: it is that of phe, whichever version."
    )


def _smaller(sizes: Sizes) -> str:
    if sizes == FULL:
        return ""
    own, full = sizes.private, FULL.private
    return (
        f"{_DATA.get(own.data, own.data)} (1,797 images) with a perceptron instead of MNIST with a CNN for the noisy "
        "averages, grids of "
        f"{len(own.clips)} x {len(own.sigmas)} points instead of {len(full.clips)} x {len(full.sigmas)}, "
        f"{len(sizes.panels.lengths)} lengths in the panels instead of {len(FULL.panels.lengths)}, and {sizes.rounds} "
        f"rounds of encrypted learning instead of {FULL.rounds}. Accuracies are of this other task."
    )


NAME = "report-000"
EXPERIMENT = Experiment(
    name=NAME,
    title="Report 000: noise and Paillier in federated learning",
    source=(
        "A report of 2021 on a course's lab: federated averaging on MNIST with clipped updates and Gaussian "
        "noise (C 0.5, "
        "sigma 0.05 by default, and a grid), Gaussian mechanisms for epsilon above 1, Paillier on gmpy2 timed over the "
        "length of integers, and federated learning whose updates are encrypted float by float."
    ),
    document=quoted.DOCUMENT,
    parts=(
        "DP learning curve",
        "grid of C and sigma",
        "epsilon, and mechanisms above 1",
        "nine Paillier panels",
        "encrypted learning curve and stage times",
    ),
    quick="57 s of one core",
    full="25 min of one core",
    run=run,
)
