"""The ElGamal lab again: three stages by key size, before and after, batches, randomness, and products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tacit.crypto import elgamal
from tacit_labs.harness import quoted
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.measuring import Job, asked, here
from tacit_labs.lab_004.elgamal import page
from tacit_labs.lab_004.elgamal.checks import products, randomness, symbols
from tacit_labs.lab_004.elgamal.jobs import group
from tacit_labs.lab_004.elgamal.measured import Batch, ByHand, Measured, Prime, Sizes, Stages

NAME = "lab-elgamal"
_JOBS = "tacit_labs.lab_004.elgamal.jobs"
_ALL_SHORT = 256  # up to this length of p, short exponents are as long as full ones


FULL = Sizes()
QUICK = Sizes(
    key_bits=(256, 512, 1024, 2048),
    searches=((256, 10), (512, 10), (1024, 3)),
    candidates=300,
    count=20,
    count_textbook=1,
    repeats=2,
    batches=(1, 10, 100, 1000),
    random=5,
    ciphertexts=500,
    guesses=50,
)
_SMALLER = (
    f"Keys up to {max(QUICK.key_bits)} bits instead of {max(FULL.key_bits)}, safe primes up to "
    f"{max(bits for bits, _ in QUICK.searches)} bits instead of {max(bits for bits, _ in FULL.searches)} and fewer of "
    f"them, the best of {QUICK.repeats} instead of {FULL.repeats}, {QUICK.ciphertexts} ciphertexts of one number "
    f"instead of {FULL.ciphertexts:,}."
)


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Measure everything anew."""
    return reproduce(QUICK if settings.quick else FULL, settings, progress)


def reproduce(sizes: Sizes, settings: Settings, progress: Progress) -> Reproduction:
    """Measure with some sizes and make the page's parts of it."""
    return page.reproduction(measure(sizes, progress), _SMALLER if settings.quick else "")


def measure(sizes: Sizes, progress: Progress) -> Measured:
    """Check, look and time."""
    checks = {}
    for bits in sizes.check_bits:
        progress(f"products at {bits} bits")
        public, private = elgamal.generate(group(bits), insecure_key_size=True)
        checks[bits] = products(public, private, random=sizes.random)
    progress("randomness")
    public, _ = elgamal.generate(group(sizes.batch_bits), insecure_key_size=True)
    looks = randomness(public, message=sizes.message, count=sizes.ciphertexts)
    progress("what an outsider can guess")
    guesses = symbols(public, count=sizes.guesses)
    rows, absent = asked(_JOBS, lambda backends: list(_jobs(sizes, backends)), progress)
    return Measured(
        here=here(),
        sizes=sizes,
        checks=checks,
        randomness=looks,
        guesses=guesses,
        absent=absent,
        primes=tuple(row for row in rows if isinstance(row, Prime)),
        stages=tuple(row for row in rows if isinstance(row, Stages)),
        by_hand=tuple(row for row in rows if isinstance(row, ByHand)),
        batch=tuple(row for row in rows if isinstance(row, Batch)),
    )


def _jobs(sizes: Sizes, backends: Sequence[str]) -> Iterator[Job]:
    """Yield what is asked of whom."""
    few = {"count": sizes.count_textbook, "repeats": min(2, sizes.repeats)}
    many = {"count": sizes.count, "repeats": sizes.repeats}
    for bits, searches in sizes.searches:
        words, sample = f"primes at {bits} bits", {"bits": bits, "sample": sizes.candidates}
        yield Job(makes=Prime, by="textbook", name="textbook prime", arguments=sample, words=words)
        found = {"bits": bits, "searches": searches}
        yield Job(makes=Prime, by="Tacit", name="prime", arguments=found, words=words)
    for bits in sizes.key_bits:
        words, book, own = f"stages at {bits} bits", {"bits": bits} | few, {"bits": bits} | many
        yield Job(makes=Stages, by="textbook", name="textbook stages", arguments=book, words=words)
        for by in backends:
            for kind in ("short", "full") if bits > _ALL_SHORT else ("short",):
                arguments = own | {"exponents": kind}
                yield Job(makes=Stages, by=by, name="stages", arguments=arguments, words=words)
            yield Job(makes=ByHand, by=by, name="by hand", arguments=own, words=f"by hand at {bits} bits")
    for size in sizes.batches:
        batch = {"bits": sizes.batch_bits, "size": size, "repeats": sizes.repeats}
        for by in backends:
            yield Job(makes=Batch, by=by, name="batch", arguments=batch, words=f"batches of {size}")


EXPERIMENT = Experiment(
    name=NAME,
    title="The ElGamal lab",
    source=(
        "A teaching lab on ElGamal encryption in Python: the time of key generation, encryption and decryption by key "
        "size, before and after its improvements and in batches; ciphertexts of one number that all differ; products "
        "under encryption and their time. Of its figures one is at hand: "
        + ", ".join(f"a safe prime of {bits} bits took {seconds:g} s" for bits, seconds in quoted.SAFE_PRIME.items())
        + "."
    ),
    run=run,
)
