"""The Paillier lab again: correctness, timings at a 1024-bit key, and a federated epoch under encryption."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tacit.crypto import paillier
from tacit.crypto.gmp import cores
from tacit_labs.harness import quoted
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.measuring import backends, here
from tacit_labs.lab_paillier import page
from tacit_labs.lab_paillier.checks import check
from tacit_labs.lab_paillier.learning import WAYS, Way, learn

NAME = "lab-paillier"
PARAMETERS = 21_840  # of the lab's CNN
_JOBS = "tacit_labs.lab_paillier.jobs"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    key_bits: int = quoted.PAILLIER_KEY_BITS
    safe_bits: int = 2048
    random: int = 20  # random pairs a check
    grid: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000)
    grid_count: int = 50
    grid_textbook: int = 4
    repeats: int = 5
    exercises: int = quoted.PAILLIER_REPEATS
    exercises_textbook: int = 50  # scaled
    integers: tuple[int, ...] = tuple(quoted.PAILLIER_EXERCISE)
    sample: int = 100  # numbers in a ciphertext each
    sample_textbook: int = 10
    length: int = PARAMETERS
    ways: tuple[Way, ...] = WAYS
    rounds: int = 3
    passes: int = 3  # runs of each way, in turn; the fastest counts
    clients: int = 10
    data: Mapping[str, Any] = field(default_factory=lambda: {"name": "mnist"})


FULL = Sizes()
QUICK = Sizes(
    random=5,
    grid=(10, 100, 1000),
    grid_count=20,
    grid_textbook=1,
    repeats=2,
    exercises=100,
    exercises_textbook=3,
    sample=20,
    sample_textbook=1,
    ways=(WAYS[0], WAYS[1], WAYS[3]),
    rounds=2,
    passes=1,
)
_SMALLER = (
    f"{QUICK.exercises} exercises instead of {FULL.exercises:,} (scaled), {len(QUICK.grid)} lengths of integers "
    f"instead of {len(FULL.grid)}, the best of {QUICK.repeats} instead of {FULL.repeats}, {QUICK.passes} run of "
    f"{QUICK.rounds} epochs instead of {FULL.passes} of {FULL.rounds}, and none at {FULL.safe_bits} bits."
)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Measure everything anew."""
    return reproduce(QUICK if settings.quick else FULL, settings, progress)


def reproduce(sizes: Sizes, settings: Settings, progress: Progress) -> Reproduction:
    """Measure with some sizes and make the page's parts of it."""
    return page.reproduction(measure(sizes, settings, progress), _SMALLER if settings.quick else "")


def measure(sizes: Sizes, settings: Settings, progress: Progress) -> dict[str, Any]:
    """Return everything as plain values."""
    found: dict[str, Any] = {
        "machine": here(),
        "sizes": {name: value for name, value in asdict(sizes).items() if name not in ("ways", "data")},
        "checks": [],
    }
    for bits in (sizes.key_bits, sizes.safe_bits):
        progress(f"correctness at {bits} bits")
        public, private = paillier.generate(bits=bits, insecure_key_size=True)
        for one in check(public, private, random=sizes.random):
            found["checks"].append(asdict(one) | {"key_bits": bits, "verdict": one.verdict})
    with contextlib.ExitStack() as stack:
        sides, found["absent"] = backends(_JOBS)
        for side in sides.values():
            stack.enter_context(side)
        jobs = list(_jobs(sizes, list(sides)))
        for done, (kind, by, job, arguments) in enumerate(jobs):
            progress(f"{kind}, {by}", done=done, total=len(jobs))
            answer = sides.get(by, next(iter(sides.values()))).ask(job, **arguments)
            found.setdefault(kind, []).append(arguments | {"by": by} | answer)
    found["learning"] = _learning(sizes, settings, progress)
    return found


def _learning(sizes: Sizes, settings: Settings, progress: Progress) -> list[dict[str, Any]]:
    """Run all ways in turn, several times, so that a busy minute hits all of them; the fastest run of each counts."""
    runs: dict[str, list[dict[str, Any]]] = {way.name: [] for way in sizes.ways}
    for number in range(sizes.passes):
        for place, way in enumerate(sizes.ways):
            done = number * len(sizes.ways) + place
            progress(f"learning: {way.name}", done=done, total=sizes.passes * len(sizes.ways))
            made = learn(
                way,
                rounds=sizes.rounds,
                clients=sizes.clients,
                workers=cores(),
                seed=settings.seed,
                data=sizes.data,
            )
            runs[way.name].append(made)
    return [min(made, key=lambda one: one["epoch_seconds"]) for made in runs.values()]


def _jobs(sizes: Sizes, sides: list[str]) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return what is asked of whom: what it is for, by whom, the job and its arguments."""
    few = {"repeats": min(2, sizes.repeats)}
    key, many = {"key_bits": sizes.key_bits}, {"repeats": sizes.repeats}
    jobs: list[tuple[str, str, str, dict[str, Any]]] = []
    for bits in sizes.grid:
        jobs.append(
            ("grid", "textbook", "textbook operations", key | {"bits": bits, "count": sizes.grid_textbook} | few)
        )
        jobs += [("grid", by, "operations", key | {"bits": bits, "count": sizes.grid_count} | many) for by in sides]
    for bits in sizes.integers:
        book = key | {"bits": bits, "count": sizes.exercises_textbook, "repeats": 1, "by": "textbook"}
        jobs.append(("exercises", "textbook", "exercise", book))
        own = key | {"bits": bits, "count": sizes.exercises, "by": "tacit"} | few
        jobs += [("exercises", by, "exercise", own) for by in sides]
    for bits in (sizes.key_bits, sizes.safe_bits):
        length = {"key_bits": bits, "length": sizes.length} | many
        jobs.append(
            (
                "one_by_one",
                "textbook",
                "one by one",
                {"key_bits": bits, "count": sizes.sample_textbook, "by": "textbook"} | few,
            )
        )
        jobs += [
            ("one_by_one", by, "one by one", {"key_bits": bits, "count": sizes.sample, "by": "tacit"} | few)
            for by in sides
        ]
        jobs += [("packed", by, "packed", length | {"holder": holder}) for by in sides for holder in (False, True)]
    return jobs


EXPERIMENT = Experiment(
    name=NAME,
    title="The Paillier lab",
    source=(
        "A teaching lab on Paillier encryption: it checked the operations on small and large integers, timed them at a "
        f"{quoted.PAILLIER_KEY_BITS}-bit key over integers of 10 to 1000 bits, and trained a CNN on MNIST whose "
        f"updates clients encrypted number by number: {quoted.CLIENT_ENCRYPTS:.0f} s to encrypt and "
        f"{quoted.CLIENT_DECRYPTS:.0f} s to decrypt a client's model, {quoted.ENCRYPTED_EPOCH:,.0f} s an epoch against "
        f"{quoted.PLAIN_EPOCH:.0f} s in the clear."
    ),
    run=run,
)
