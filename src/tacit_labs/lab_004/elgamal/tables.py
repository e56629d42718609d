"""The ElGamal lab's tables, from what was measured, the lab's one figure beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tacit.report.page import Cell, Table, Tone
from tacit_labs.harness import checks as harness
from tacit_labs.harness import quoted
from tacit_labs.harness.measuring import LAB, duration, makers, named, pick, times
from tacit_labs.lab_004.elgamal.checks import FAR, UNUSUAL
from tacit_labs.lab_004.elgamal.measured import STAGES, Measured


def stages(found: Measured) -> Table:
    """Return key generation, encryption and decryption by key size and by who computes."""
    rows: list[tuple[Cell, ...]] = []
    for bits in found.sizes.key_bits:
        if bits in quoted.SAFE_PRIME:
            rows.append((str(bits), LAB, None, f"{quoted.SAFE_PRIME[bits]:g} s", *[None] * 3))
        for row in found.stages:
            if row.bits == bits:
                cells = [found.seconds(bits, stage, row.by, row.exponents or "short") for stage in STAGES]
                shown = [None if cell is None else duration(cell) for cell in cells]
                rows.append((str(bits), named(row.by), str(row.exponent_bits), *shown))
    return Table(
        columns=("Key bits", "By", "Exponent bits", *(name.capitalize() for name in STAGES.values())),
        rows=rows,
        align="rlrrrrr",
        caption=(
            "One operation, one thread, processor time. A key is a safe prime and a pair of exponents; named groups "
            "(2048 bits and more) need no prime of their own. Textbook primes are extrapolated from "
            f"{found.sizes.candidates:,} candidates, and Tacit's averaged, both to the mean length of a search."
        ),
    )


def before_and_after(found: Measured) -> Table:
    """Return the same as ratios."""
    rows = [
        (
            str(one.bits),
            STAGES[one.stage],
            one.lab and f"{one.lab:g} s",
            duration(one.before),
            duration(one.after),
            times(one.before / one.after),
            one.full and duration(one.full),
            one.full and times(one.before / one.full),
        )
        for one in found.changes()
    ]
    return Table(
        columns=("Key bits", "Stage", "The lab", "Before", "After", "Faster", "After, full exponents", "Faster"),
        rows=rows,
        align="rlrrrrrr",
        caption=(
            f"Before: the textbook in Python's integers. After: {named(found.here.backend)}, one number at a time. "
            "Exponents are 256 bits up to 2048 and 288 at 3072 by default; with full ones both compute the same powers."
        ),
    )


def batches(found: Measured) -> Table:
    """Return what a number costs in batches of several sizes."""
    rows: list[tuple[Cell, ...]] = []
    bits = found.sizes.batch_bits
    book = pick(found.stages, by="textbook", bits=bits)
    alone = (book.encrypt, book.decrypt, book.multiply)
    rows.append(("textbook", "1", *(cell for seconds in alone for cell in (duration(seconds), "1x"))))
    for by in makers(found.batch):
        for row in found.batch:
            if row.by == by:
                pairs = zip(alone, (row.encrypt, row.decrypt, row.multiply), strict=True)
                cells = [cell for before, after in pairs for cell in (duration(after), times(before / after))]
                rows.append((named(by), f"{row.size:,}", *cells))
    return Table(
        columns=("By", "Batch", "Encrypt", "Faster", "Decrypt", "Faster", "Multiply", "Faster"),
        rows=rows,
        align="lrrrrrrr",
        caption=f"Time per number, key of {bits} bits, one thread; tables were built before. Every batch was checked.",
    )


def checks(found: Measured) -> Table:
    """Return PASS or FAIL for every operation."""
    caption = "Results beyond (p - 1) / 2 are right modulo p and up to the sign, which is how messages are encoded."
    return harness.table(found.checks, caption=caption)


def products(found: Measured) -> Table:
    """Return what a product under encryption costs, beside decrypting, multiplying and encrypting anew."""
    own = found.here.backend
    rows = []
    for bits in found.sizes.key_bits:
        book = pick(found.stages, by="textbook", bits=bits).multiply
        alone = pick(found.stages, by=own, bits=bits, exponents="short").multiply
        hand = pick(found.by_hand, by=own, bits=bits).seconds
        many = [row for row in found.batch if row.by == own and row.bits == bits]
        largest = max(many, key=lambda row: row.size) if many else None
        rows.append(
            (
                str(bits),
                duration(book),
                duration(alone),
                None if largest is None else f"{duration(largest.multiply)} (of {largest.size:,})",
                duration(hand),
                times(hand / alone),
            )
        )
    return Table(
        columns=("Key bits", "Textbook", "Tacit, one", "Tacit, in a batch", "By the key holder", "Saves"),
        rows=rows,
        align="rrrrrr",
        caption=(
            "One product of two encrypted numbers. By the key holder: two decryptions, a product and an encryption. A "
            "single product takes Tacit longer than Python's integers, because numbers are kept as rows of bytes; in "
            "batches that cost is shared."
        ),
    )


def looks(found: Measured) -> Table:
    """Return what ciphertexts of one number look like, and what uniform numbers would."""
    seen = found.randomness
    halves = seen.halves.values()
    width = next(iter(halves)).lower_bits
    rows: list[tuple[Cell, ...]] = [
        (
            "different ciphertexts",
            *[f"{seen.different:,} of {seen.count:,}"] * len(halves),
            "all",
            _verdict(seen.different == seen.count),
        )
    ]
    far, even = f"within {FAR:g}", f"above {UNUSUAL:g}"
    distance = "their distance from half, in standard deviations"
    half_of_them = f"{width / 2:.0f} of {width}"

    def near(values: Sequence[float]) -> bool:
        return all(abs(value) < FAR for value in values)

    def usual(values: Sequence[float]) -> bool:
        return all(value > UNUSUAL for value in values)

    statistics: tuple[tuple[str, list[float], str, str, Callable[[Sequence[float]], bool] | None], ...] = (
        ("ones among the bits", [half.ones for half in halves], ".3%", "50%", None),
        (distance, [half.ones_z for half in halves], "+.2f", far, near),
        ("bits that differ from one to the next", [half.flips_mean for half in halves], ".1f", half_of_them, None),
        (distance, [half.flips_z for half in halves], "+.2f", far, near),
        ("evenness over [0, p): p-value", [half.bucket_p for half in halves], ".3f", even, usual),
        ("evenness of the bytes: p-value", [half.byte_p for half in halves], ".3f", even, usual),
    )
    for name, values, form, expected, fine in statistics:
        verdict = _verdict(fine(values)) if fine else ""
        rows.append((name, *(format(value, form) for value in values), expected, verdict))
    tones: dict[tuple[int, int], Tone] = {
        (row, len(halves) + 2): "good" if cells[-1] == "PASS" else "bad" for row, cells in enumerate(rows) if cells[-1]
    }
    return Table(
        columns=("Statistic", *seen.halves, "Uniform numbers", "Result"),
        rows=rows,
        align="l" + "r" * len(halves) + "rl",
        tones=tones,
        caption=f"The number {seen.message}, encrypted {seen.count:,} times with one key of {seen.bits} bits.",
    )


def leak(found: Measured) -> Table:
    """Return how often an outsider guesses right whether an encrypted number is a square."""
    seen = found.guesses
    rows = [
        (name, f"{right} of {seen.count}", text)
        for right, name, text in (
            (seen.textbook, "textbook: g generates all numbers modulo p", "always: the scheme tells"),
            (seen.tacit, "Tacit: messages are encoded as squares", "as by tossing a coin"),
        )
    ]
    return Table(
        columns=("Scheme", "Right guesses", "What to expect"),
        rows=rows,
        align="lrl",
        caption="Is the encrypted number a square modulo p? Guessed with Legendre symbols of public values alone.",
    )


def _verdict(fine: bool) -> str:
    return "PASS" if fine else "FAIL"
