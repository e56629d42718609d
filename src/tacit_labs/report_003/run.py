"""The report of 003 again: five settings of noise, the rounds it prints, 1,000 operations, and encrypted learning."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tacit.limits import cores
from tacit_labs.baselines.paillier import ARITHMETICS
from tacit_labs.harness.checks import Check, judge
from tacit_labs.harness.encrypted import WAYS, Way, learn
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.measuring import asked, here
from tacit_labs.harness.paillier_jobs import TACIT, Scheme, scheme
from tacit_labs.report_003 import page, private, quoted, timings
from tacit_labs.report_003.losses import last_epochs

NAME = "report-003"
_DATA = {"mnist": "MNIST", "digits": "Digits of 8 x 8 pixels"}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the full run's."""

    private: private.Sizes = field(default_factory=private.Sizes)
    timings: timings.Sizes = field(default_factory=timings.Sizes)
    check_bits: int = 1024
    ways: tuple[Way, ...] = (WAYS[0], WAYS[1], WAYS[3])
    rounds: int = quoted.ROUNDS  # of encrypted learning
    clients: int = quoted.CLIENTS
    data: Mapping[str, Any] = field(default_factory=lambda: {"name": "mnist"})


FULL = Sizes()
QUICK = Sizes(
    private=private.Sizes(data="digits", model="mlp", rounds=3, seeds=2),
    timings=timings.Sizes(key_bits=(1024, 2048), count=30, scaled=5, slow=2),
    ways=(WAYS[0], WAYS[1]),
    rounds=2,
    data={"name": "digits"},
)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run the report's experiments as large as ``settings`` ask."""
    return reproduce(QUICK if settings.quick else FULL, settings, progress)


def reproduce(sizes: Sizes, settings: Settings, progress: Progress) -> Reproduction:
    """Train, measure and compare."""
    mark = zlib.crc32(repr((sizes.private, settings.seed, settings.gpu)).encode())
    folder = settings.work(NAME) / f"{mark:08x}"
    learned = replace(
        private.measure(sizes.private, settings, folder, progress),
        last_epochs=last_epochs(sizes.private, settings, folder, progress),
    )
    progress("the report's four results")
    checks = cases(sizes.check_bits)
    rows, absent = asked(timings.JOBS, lambda backends: list(timings.jobs(sizes.timings, backends)), progress)
    exercises = [one for row in rows if isinstance(row, timings.Exercises) for one in row.each()]
    timed = timings.Timed(sizes=sizes.timings, rows=exercises, absent=absent)
    epochs = []
    for place, way in enumerate(sizes.ways):
        progress(f"encrypted learning: {way.name}", done=place, total=len(sizes.ways))
        data = dict(sizes.data) | ({} if settings.data_dir is None else {"folder": str(settings.data_dir)})
        epochs.append(
            learn(
                way,
                rounds=sizes.rounds,
                clients=sizes.clients,
                values=private.training(sizes.private.local_epochs),
                workers=cores(),
                seed=settings.seed,
                data=data,
            )
        )
    computer = here()
    tables = {
        "accuracy": page.accuracy_table(learned),
        "epsilon": page.epsilon_table(learned),
        "curve": page.curve_table(learned),
        "checks": page.check_table(checks),
        "operations": page.timing_table(timed),
        "growth": page.growth_table(timed),
        "learning": page.learning_table(epochs),
    }
    return Reproduction(
        settings=_said(sizes, settings, learned.plain.parameters) + " " + computer.words(),
        smaller=_smaller(sizes),
        findings=page.findings(learned, timed, epochs, computer.backend),
        sections=page.sections(learned, timed, checks, epochs),
        tables=tables,
        data={
            "machine": computer.to_dict(),
            "private": learned.to_dict(),
            "checks": [vars(one) | {"verdict": one.verdict} for one in checks],
            "operations": timed.to_dict(),
            "learning": [vars(one) for one in epochs],
        },
    )


def cases(bits: int) -> list[Check]:
    """Compute what the report prints, by both textbooks and by Tacit."""
    made = []
    for by in (*ARITHMETICS, TACIT):
        key = scheme(bits, by)
        for words, operation, (a, b), right in quoted.CASES:
            made.append(judge(words, by, [(words, int(_result(key, operation, a, b)), right)]))
    return made


def _result(key: Scheme, operation: str, a: int, b: int) -> int:
    left = key.enc(a)
    if operation == "enc":
        return key.dec(left)
    if operation == "enc_add":
        return key.dec(key.enc_add(left, key.enc(b)))
    return key.dec((key.enc_add_const if operation == "enc_add_const" else key.enc_mul_const)(left, b))


def _said(sizes: Sizes, settings: Settings, parameters: int) -> str:
    own = sizes.private
    return (
        f"{_DATA.get(own.data, own.data)}, model `{own.model}`, {own.clients} clients with data mixed evenly, all of "
        f"them in each of {own.rounds} rounds, {own.local_epochs} local epoch{'s' * (own.local_epochs > 1)} per round "
        f"in batches of {quoted.BATCH} at rate {quoted.RATE:g} with momentum {quoted.MOMENTUM:g}, seed "
        f"{settings.seed}. The report states none of this; the settings are those of its author's public code "
        f"(`{quoted.REPOSITORY}`), with its CNN of {parameters:,} parameters."
    )


def _smaller(sizes: Sizes) -> str:
    if sizes == FULL:
        return ""
    own, full = sizes.private, FULL.private
    return (
        f"{_DATA.get(own.data, own.data)} (1,797 images) with a perceptron instead of MNIST with a CNN, "
        f"{own.rounds} rounds instead of {full.rounds}, {sizes.timings.count} operations instead of "
        f"{FULL.timings.count:,} (scaled). "
        "Accuracies are of this other task; the epsilons depend on neither data nor model."
    )


EXPERIMENT = Experiment(
    name=NAME,
    title="Report 003: five settings of noise, and 1,000 operations",
    source=(
        "A report, in Chinese, on the same course's lab as 000, by another author: federated learning with "
        "clipping and "
        "Gaussian noise on the server, a table of five settings with epsilon and first-round accuracy, the "
        "output of one run, a proof for epsilon above 1, and Paillier timed over 1,000 operations."
    ),
    document=quoted.DOCUMENT,
    parts=(
        "table of five settings",
        "rounds 0 to 5 at sigma 0.0001, C 2",
        "1,000 operations",
        "Paillier in learning",
        "proof (22)-(24)",
    ),
    quick="16 s of one core",
    full="16 min of one core",
    run=run,
)
