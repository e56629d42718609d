"""The ElGamal lab again: three stages by key size, before and after, batches, randomness, and products."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

from tacit.crypto import elgamal
from tacit_labs.harness import quoted
from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.harness.measuring import backends, here
from tacit_labs.lab_elgamal import page
from tacit_labs.lab_elgamal.checks import products, randomness, symbols
from tacit_labs.lab_elgamal.jobs import group

NAME = "lab-elgamal"
_JOBS = "tacit_labs.lab_elgamal.jobs"
_ALL_SHORT = 256  # up to this length of p, short exponents are as long as full ones

Job = tuple[str, str, str, dict[str, Any]]  # what it is for, by whom, the job, its arguments


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    key_bits: tuple[int, ...] = (256, 512, 1024, 2048, 3072)
    searches: tuple[tuple[int, int], ...] = ((256, 40), (512, 40), (1024, 15), (2048, 3))  # for safe primes, by bits
    candidates: int = 2000  # of the textbook's search, scaled
    count: int = 50
    count_textbook: int = 4
    repeats: int = 5
    batches: tuple[int, ...] = (1, 10, 100, 1000)
    batch_bits: int = 2048
    random: int = 20  # random pairs a check
    check_bits: tuple[int, ...] = (1024, 2048)
    message: int = 42
    ciphertexts: int = 2000
    guesses: int = 200


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


def measure(sizes: Sizes, progress: Progress) -> dict[str, Any]:
    """Return everything as plain values."""
    found: dict[str, Any] = {"machine": here(), "sizes": asdict(sizes), "checks": []}
    for bits in sizes.check_bits:
        progress(f"products at {bits} bits")
        public, private = elgamal.generate(group(bits), insecure_key_size=True)
        for one in products(public, private, random=sizes.random):
            found["checks"].append(asdict(one) | {"key_bits": bits, "verdict": one.verdict})
    progress("randomness")
    public, _ = elgamal.generate(group(sizes.batch_bits), insecure_key_size=True)
    found["randomness"] = randomness(public, message=sizes.message, count=sizes.ciphertexts)
    progress("what an outsider can guess")
    found["symbols"] = symbols(public, count=sizes.guesses)
    with contextlib.ExitStack() as stack:
        sides, found["absent"] = backends(_JOBS)
        for side in sides.values():
            stack.enter_context(side)
        jobs = _jobs(sizes, list(sides))
        for done, (kind, by, job, arguments) in enumerate(jobs):
            progress(f"{kind} at {arguments['bits']} bits, {by}", done=done, total=len(jobs))
            answer = sides.get(by, next(iter(sides.values()))).ask(job, **arguments)
            found.setdefault(kind, []).append(arguments | {"by": by} | answer)
    return found


def _jobs(sizes: Sizes, sides: list[str]) -> list[Job]:
    jobs: list[Job] = []
    few = {"count": sizes.count_textbook, "repeats": min(2, sizes.repeats)}
    many = {"count": sizes.count, "repeats": sizes.repeats}
    for bits, searches in sizes.searches:
        jobs.append(("primes", "textbook", "textbook prime", {"bits": bits, "sample": sizes.candidates}))
        jobs.append(("primes", "Tacit", "prime", {"bits": bits, "searches": searches}))  # gmpy2 on every backend
    for bits in sizes.key_bits:
        jobs.append(("stages", "textbook", "textbook stages", {"bits": bits} | few))
        for by in sides:
            kinds = ("short", "full") if bits > _ALL_SHORT else ("short",)
            jobs += [("stages", by, "stages", {"bits": bits, "exponents": kind} | many) for kind in kinds]
            jobs.append(("by_hand", by, "by hand", {"bits": bits} | many))
    for size in sizes.batches:
        arguments = {"bits": sizes.batch_bits, "size": size, "repeats": sizes.repeats}
        jobs += [("batch", by, "batch", arguments) for by in sides]
    return jobs


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
