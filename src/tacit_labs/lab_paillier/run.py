"""The Paillier lab again: correctness, timings at a 1024-bit key, and a federated epoch under encryption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tacit.crypto import paillier
from tacit.crypto.ring import cores
from tacit_labs.harness import quoted
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.measuring import Job, asked, here
from tacit_labs.lab_paillier import page
from tacit_labs.lab_paillier.checks import check
from tacit_labs.lab_paillier.learning import WAYS, EncryptedEpoch, Epoch, learn
from tacit_labs.lab_paillier.measured import Exercises, Measured, OneByOne, Operations, Packed, Sizes

NAME = "lab-paillier"
_JOBS = "tacit_labs.lab_paillier.jobs"


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


def measure(sizes: Sizes, settings: Settings, progress: Progress) -> Measured:
    """Check, time and learn."""
    checks = {}
    for bits in (sizes.key_bits, sizes.safe_bits):
        progress(f"correctness at {bits} bits")
        public, private = paillier.generate(bits=bits, insecure_key_size=True)
        checks[bits] = check(public, private, random=sizes.random)
    rows, absent = asked(_JOBS, lambda backends: list(_jobs(sizes, backends)), progress)
    plain, *epochs = _learning(sizes, settings, progress)
    return Measured(
        here=here(),
        sizes=sizes,
        checks=checks,
        absent=absent,
        grid=tuple(row for row in rows if isinstance(row, Operations)),
        exercises=tuple(row for row in rows if isinstance(row, Exercises)),
        one_by_one=tuple(row for row in rows if isinstance(row, OneByOne)),
        packed=tuple(row for row in rows if isinstance(row, Packed)),
        plain=plain,
        encrypted=tuple(epoch for epoch in epochs if isinstance(epoch, EncryptedEpoch)),
    )


def _learning(sizes: Sizes, settings: Settings, progress: Progress) -> list[Epoch]:
    """Run all ways in turn, several times, so that a busy minute hits all of them; the fastest run of each counts."""
    runs: dict[str, list[Epoch]] = {way.name: [] for way in sizes.ways}
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
    return [min(made, key=lambda one: one.epoch_seconds) for made in runs.values()]


def _jobs(sizes: Sizes, backends: Sequence[str]) -> Iterator[Job]:
    """Yield what is asked of whom."""
    few, many = {"repeats": min(2, sizes.repeats)}, {"repeats": sizes.repeats}
    sides = ("textbook", *backends)
    for bits in sizes.grid:
        for by in sides:
            book = by == "textbook"
            name, count = ("textbook operations", sizes.grid_textbook) if book else ("operations", sizes.grid_count)
            integers = {"key_bits": sizes.key_bits, "bits": bits, "count": count} | (few if book else many)
            yield Job(makes=Operations, by=by, name=name, arguments=integers, words="grid")
    for bits in sizes.integers:
        for by in sides:
            book = by == "textbook"
            count, repeats = (sizes.exercises_textbook, {"repeats": 1}) if book else (sizes.exercises, few)
            integers = {"key_bits": sizes.key_bits, "bits": bits, "count": count} | repeats
            arguments = integers | {"by": "textbook" if book else "tacit"}
            yield Job(makes=Exercises, by=by, name="exercise", arguments=arguments, words="exercises")
    for bits in (sizes.key_bits, sizes.safe_bits):
        for by in sides:
            count, way = (sizes.sample_textbook, "textbook") if by == "textbook" else (sizes.sample, "tacit")
            single = {"key_bits": bits, "count": count, "by": way} | few
            yield Job(makes=OneByOne, by=by, name="one by one", arguments=single, words="one number per ciphertext")
        for by in backends:
            for holder in (False, True):
                update = {"key_bits": bits, "length": sizes.length, "holder": holder} | many
                yield Job(makes=Packed, by=by, name="packed", arguments=update, words="packed")


EXPERIMENT = Experiment(
    name=NAME,
    title="The Paillier lab",
    source=(
        "A teaching lab on Paillier encryption: it checked the operations on small and large integers, timed them at a "
        f"{quoted.PAILLIER_KEY_BITS}-bit key over integers of 10 to 1000 bits, and trained a CNN on MNIST whose "
        f"updates clients encrypted number by number: {quoted.CLIENT_ENCRYPTS:.0f} s to encrypt and "
        f"{quoted.CLIENT_DECRYPTS:.0f} s to decrypt a client's model, {quoted.ENCRYPTED_EPOCH:,.0f} s per epoch "
        f"against {quoted.PLAIN_EPOCH:.0f} s in the clear."
    ),
    run=run,
)
