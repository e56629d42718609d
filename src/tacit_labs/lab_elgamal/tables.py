"""The ElGamal lab's tables, from what was measured, the lab's one figure beside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tacit.report.page import Table, Tone
from tacit_labs.harness import quoted
from tacit_labs.harness.measuring import Data, duration, makers, named, pick, times
from tacit_labs.lab_elgamal.checks import FAR, UNUSUAL

STAGES = {"prime": "safe prime", "pair": "key pair", "encrypt": "encryption", "decrypt": "decryption"}


def backend(found: Data) -> str:
    """Return the backend that this machine uses by itself."""
    return str(found["machine"]["backend"])


def seconds(found: Data, bits: int, stage: str, by: str, exponents: str = "short") -> float | None:
    """Return what a stage took, or None where it was not measured."""
    if stage == "prime":
        who = "textbook" if by == "textbook" else "Tacit"
        rows = [row for row in found["primes"] if row["bits"] == bits and row["by"] == who]
    else:
        rows = [
            row
            for row in found["stages"]
            if row["bits"] == bits and row["by"] == by and row.get("exponents", exponents) == exponents
        ]
    return float(rows[0]["seconds" if stage == "prime" else stage]) if rows else None


def stages(found: Data) -> Table:
    """Return key generation, encryption and decryption by key size and by who computes."""
    rows: list[tuple[object, ...]] = []
    for bits in found["sizes"]["key_bits"]:
        if bits in quoted.SAFE_PRIME:
            rows.append((str(bits), "the lab's report (quoted)", None, f"{quoted.SAFE_PRIME[bits]:g} s", *[None] * 3))
        for row in found["stages"]:
            if row["bits"] == bits:
                cells = [seconds(found, bits, stage, row["by"], row.get("exponents", "short")) for stage in STAGES]
                shown = [None if cell is None else duration(cell) for cell in cells]
                rows.append((str(bits), named(row["by"]), str(row["exponent_bits"]), *shown))
    return Table(
        columns=("Key bits", "By", "Exponent bits", *(name.capitalize() for name in STAGES.values())),
        rows=rows,
        align="rlrrrrr",
        caption=(
            "One operation, one thread, processor time. A key is a safe prime and a pair of exponents; named groups "
            "(2048 bits and more) need no prime of their own. Textbook primes are extrapolated from "
            f"{found['sizes']['candidates']:,} candidates, and Tacit's averaged, both to the mean length of a search."
        ),
    )


def changes(found: Data) -> Iterator[dict[str, Any]]:
    """Yield every stage before and after: the textbook, Tacit with its defaults, Tacit with full exponents."""
    own = backend(found)
    for bits in found["sizes"]["key_bits"]:
        for stage, name in STAGES.items():
            before = seconds(found, bits, stage, "textbook")
            after = seconds(found, bits, stage, own)
            full = None if stage == "prime" else seconds(found, bits, stage, own, "full")
            if before is not None and after is not None:
                lab = quoted.SAFE_PRIME.get(bits) if stage == "prime" else None
                yield {"bits": bits, "stage": name, "lab": lab, "before": before, "after": after, "full": full}


def before_and_after(found: Data) -> Table:
    """Return the same as ratios."""
    rows = [
        (
            str(one["bits"]),
            one["stage"],
            one["lab"] and f"{one['lab']:g} s",
            duration(one["before"]),
            duration(one["after"]),
            times(one["before"] / one["after"]),
            one["full"] and duration(one["full"]),
            one["full"] and times(one["before"] / one["full"]),
        )
        for one in changes(found)
    ]
    return Table(
        columns=("Key bits", "Stage", "The lab", "Before", "After", "Faster", "After, full exponents", "Faster"),
        rows=rows,
        align="rlrrrrrr",
        caption=(
            f"Before: the textbook in Python's integers. After: {named(backend(found))}, one number at a time. "
            "Exponents are 256 bits up to 2048 and 288 at 3072 by default; with full ones both compute the same powers."
        ),
    )


def batches(found: Data) -> Table:
    """Return what a number costs in batches of several sizes."""
    rows: list[tuple[object, ...]] = []
    bits = found["sizes"]["batch_bits"]
    book = pick(found["stages"], by="textbook", bits=bits)
    rows.append(("textbook", "1", *(cell for stage in _BATCHED for cell in (duration(book[stage]), "1x"))))
    for by in makers(found["batch"]):
        for row in found["batch"]:
            if row["by"] == by:
                cells = [cell for stage in _BATCHED for cell in (duration(row[stage]), times(book[stage] / row[stage]))]
                rows.append((named(by), f"{row['size']:,}", *cells))
    return Table(
        columns=("By", "Batch", "Encrypt", "Faster", "Decrypt", "Faster", "Multiply", "Faster"),
        rows=rows,
        align="lrrrrrrr",
        caption=f"Time a number, key of {bits} bits, one thread; tables were built before. Every batch was checked.",
    )


_BATCHED = ("encrypt", "decrypt", "multiply")


def checks(found: Data) -> Table:
    """Return PASS or FAIL for every operation."""
    rows = tuple(
        (one["operation"], one["integers"], str(one["key_bits"]), one["tried"], one["verdict"], one["example"])
        for one in found["checks"]
    )
    tones: dict[tuple[int, int], Tone] = {
        (row, 4): "good" if cells[4] == "PASS" else "bad" for row, cells in enumerate(rows)
    }
    return Table(
        columns=("Operation", "Integers", "Key bits", "Tried", "Result", "For example"),
        rows=rows,
        align="llrrll",
        tones=tones,
        caption="Results beyond (p - 1) / 2 are right modulo p and up to the sign, which is how messages are encoded.",
    )


def products(found: Data) -> Table:
    """Return what a product under encryption costs, beside decrypting, multiplying and encrypting anew."""
    own = backend(found)
    rows = []
    for bits in found["sizes"]["key_bits"]:
        book = pick(found["stages"], by="textbook", bits=bits)["multiply"]
        alone = pick(found["stages"], by=own, bits=bits, exponents="short")["multiply"]
        hand = pick(found["by_hand"], by=own, bits=bits)["seconds"]
        many = [row for row in found["batch"] if row["by"] == own and row["bits"] == bits]
        largest = max(many, key=lambda row: row["size"]) if many else None
        rows.append(
            (
                str(bits),
                duration(book),
                duration(alone),
                largest and f"{duration(largest['multiply'])} (of {largest['size']:,})",
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


def looks(found: Data) -> Table:
    """Return what ciphertexts of one number look like, and what uniform numbers would."""
    seen = found["randomness"]
    halves = seen["halves"]
    width = next(iter(halves.values()))["lower_bits"]
    rows: list[tuple[object, ...]] = [
        (
            "different ciphertexts",
            *[f"{seen['different']:,} of {seen['count']:,}"] * len(halves),
            "all",
            _verdict(seen["different"] == seen["count"]),
        )
    ]
    far, even = f"within {FAR:g}", f"above {UNUSUAL:g}"
    for name, key, form, expected in (
        ("ones among the bits", "ones", "{:.3%}", "50%"),
        ("their distance from half, in standard deviations", "ones_z", "{:+.2f}", far),
        ("bits that differ from one to the next", "flips_mean", "{:.1f}", f"{width / 2:.0f} of {width}"),
        ("their distance from half, in standard deviations", "flips_z", "{:+.2f}", far),
        ("evenness over [0, p): p-value", "bucket_p", "{:.3f}", even),
        ("evenness of the bytes: p-value", "byte_p", "{:.3f}", even),
    ):
        values = [half[key] for half in halves.values()]
        verdict = ""
        if key.endswith("_z"):
            verdict = _verdict(all(abs(value) < FAR for value in values))
        elif key.endswith("_p"):
            verdict = _verdict(all(value > UNUSUAL for value in values))
        rows.append((name, *(form.format(value) for value in values), expected, verdict))
    tones: dict[tuple[int, int], Tone] = {
        (row, len(halves) + 2): "good" if cells[-1] == "PASS" else "bad" for row, cells in enumerate(rows) if cells[-1]
    }
    return Table(
        columns=("Statistic", *halves, "Uniform numbers", "Result"),
        rows=rows,
        align="l" + "r" * len(halves) + "rl",
        tones=tones,
        caption=f"The number {seen['message']}, encrypted {seen['count']:,} times with one key of {seen['bits']} bits.",
    )


def leak(found: Data) -> Table:
    """Return how often an outsider guesses right whether an encrypted number is a square."""
    seen = found["symbols"]
    rows = [
        (name, f"{seen['right'][key]} of {seen['count']}", text)
        for key, name, text in (
            ("textbook", "textbook: g generates all numbers modulo p", "always: the scheme tells"),
            ("tacit", "Tacit: messages are encoded as squares", "as by tossing a coin"),
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
