"""The ElGamal lab's page: what was measured, and why it differs from what the lab had."""

from __future__ import annotations

from tacit.report.page import Note, Row, Section, Text
from tacit_labs.harness import checks, quoted
from tacit_labs.harness.experiment import Finding, Reproduction
from tacit_labs.harness.measuring import duration, named, pick, times
from tacit_labs.lab_004.elgamal import charts, tables
from tacit_labs.lab_004.elgamal.measured import STAGES, Measured

_NOT_AT_HAND = "timed; its numbers are not at hand"
_UNIFORM = (
    "Looking uniform is necessary and proves nothing: that nobody can tell ciphertexts apart rests on the decisional "
    "Diffie-Hellman assumption. About one run in two thousand shows a FAIL here by chance."
)
_LEAK = (
    "A uniform look does not exclude a leak. The textbook's scheme tells a bit of every message: where g generates all "
    "numbers modulo p, Legendre symbols of the key and of the first half give that of the mask, and so that of the "
    "message. Tacit works in the squares only, so every symbol is 1."
)


def reproduction(found: Measured, smaller: str) -> Reproduction:
    """Return the page's parts, its tables and its findings."""
    made = {
        "stages": tables.stages(found),
        "before-and-after": tables.before_and_after(found),
        "batches": tables.batches(found),
        "randomness": tables.looks(found),
        "leak": tables.leak(found),
        "checks": tables.checks(found),
        "products": tables.products(found),
    }
    return Reproduction(
        settings=_settings(found),
        smaller=smaller,
        findings=findings(found),
        sections=(
            Section(
                title="Three stages by key size",
                parts=(
                    Note(
                        text="**Keys below 2048 bits are too short for use.** They are here for comparison.",
                        tone="warn",
                    ),
                    charts.stages(found),
                    made["stages"],
                ),
            ),
            Section(title="Before and after", parts=(made["before-and-after"],)),
            Section(
                title="Batches",
                lead="Tacit works on whole vectors of numbers: the cost of a call and of the core's start is shared.",
                parts=(charts.batches(found), made["batches"]),
            ),
            Section(
                title="Randomness of ciphertexts",
                lead=_UNIFORM,
                parts=(
                    made["randomness"],
                    Row(parts=(charts.places(found), charts.flips(found))),
                    made["leak"],
                    Text(text=_LEAK),
                ),
            ),
            Section(
                title="Products under encryption",
                parts=(
                    checks.verdict(found.checks, named(found.here.backend)),
                    made["checks"],
                    charts.products(found),
                    made["products"],
                ),
            ),
        ),
        tables=made,
        data=found.to_dict(),
    )


def findings(found: Measured) -> tuple[Finding, ...]:
    """Return the lab's figures, as far as they are at hand, beside ours."""
    backend = found.here.backend
    said = []
    for bits, lab in quoted.SAFE_PRIME.items():
        own, book = found.seconds(bits, "prime", backend), found.seconds(bits, "prime", "textbook")
        if own is not None and book is not None:
            said.append(
                Finding(
                    what=f"key generation: a safe prime of {bits} bits",
                    original=f"{lab:g} s",
                    ours=f"{duration(own)} ({times(lab / own)} faster); the textbook's search here: {duration(book)}, "
                    "extrapolated",
                    why=f"The textbook's search takes {times(book / lab)} of the lab's time here, so the machine is "
                    "not the reason: Tacit sieves q and 2q + 1 together before any test, and tests with GMP. Named "
                    "groups (RFC 7919) need no search at all.",
                )
            )
    longest = max(found.sizes.key_bits)
    stages = {STAGES[one.stage]: one for one in found.changes() if one.bits == longest}
    for name in ("encryption", "decryption"):
        one = stages[name]
        said.append(
            Finding(
                what=f"{name} at {longest} bits, one number",
                original=f"{_NOT_AT_HAND}; the textbook here: {duration(one.before)}",
                ours=f"{duration(one.after)} ({times(one.before / one.after)} faster)"
                + (f"; with full exponents {duration(one.full)} ({times(one.before / one.full)})" if one.full else ""),
                why="Exponents of twice the security level, as RFC 7919 has them; "
                + ("tables for g and y; " if name == "encryption" else "constant time all the same; ")
                + f"the {backend} core instead of Python's integers.",
            )
        )
    batch, bits = found.sizes.batches, found.sizes.batch_bits
    few, many = (pick(found.batch, by=backend, size=size) for size in (batch[0], batch[-1]))
    said.append(
        Finding(
            what=f"batches of {batch[-1]:,} at {bits} bits",
            original=_NOT_AT_HAND,
            ours=f"{duration(many.encrypt)} to encrypt a number, {times(few.encrypt / many.encrypt)} faster "
            f"than alone; {duration(many.decrypt)} to decrypt it ({times(few.decrypt / many.decrypt)})",
            why="A vector is one call, and the native core, where it runs, works on eight numbers at a time.",
        )
    )
    seen, guessed = found.randomness, found.guesses
    said.append(
        Finding(
            what=f"one number encrypted {seen.count:,} times",
            original="shown to differ",
            ours=f"{seen.different:,} of {seen.count:,} differ",
            why="The same scheme. But the textbook's ciphertexts tell whether the number is a square: an outsider was "
            f"right {guessed.textbook} of {guessed.count} times, and {guessed.tacit} times "
            "with Tacit's, which is chance.",
        )
    )
    saved = pick(found.by_hand, by=backend, bits=longest).seconds
    alone = pick(found.stages, by=backend, bits=longest, exponents="short").multiply
    said.append(
        Finding(
            what="products under encryption",
            original=f"shown; {_NOT_AT_HAND}",
            ours=checks.kinds_passed(found.checks)
            + f"; {duration(alone)} at {longest} bits, {times(saved / alone)} faster than decrypting, multiplying and "
            "encrypting",
            why="Two products modulo p, whatever the numbers.",
        )
    )
    return tuple(said)


def _settings(found: Measured) -> str:
    sizes = found.sizes
    return (
        f"Keys of {', '.join(map(str, sizes.key_bits))} bits; below 2048 bits in groups of new safe primes, else in "
        "those of RFC 7919. A version after the textbook in Python's integers stands for the lab's code. Processor "
        f"time of one thread, the best of {sizes.repeats}. {found.here.words()}"
        + "".join(f" The {name} backend was left out: {why}." for name, why in found.absent.items())
    )
