"""Report 004's tables on ElGamal: its numbers, its algorithms here, and Tacit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tacit.report.page import Cell, Table, Tone
from tacit_labs.harness import checks as harness
from tacit_labs.harness.measuring import digits, times
from tacit_labs.lab_004.elgamal import quoted
from tacit_labs.lab_004.elgamal.checks import FAR, UNUSUAL
from tacit_labs.lab_004.elgamal.measured import Factoring, Measured

NAMES = {"key": "1: key generation", "encrypt": "2: encryption", "decrypt": "3: decryption"}
TOO_LONG = "“用时过长” (too long)"


def milliseconds(seconds: float) -> str:
    """Return a time as the report gives it.

    >>> milliseconds(0.00574), milliseconds(4.9e-05), milliseconds(119.51577)
    ('5.74', '0.049', '119,516')
    """
    value = 1000 * seconds
    if value < 1.0:
        return f"{value:.3f}" if value >= 0.01 else f"{value:.2g}"
    return digits(value) if value >= 99.95 else f"{value:.2f}"


def stages(found: Measured) -> Table:
    """Return the three stages at all key sizes."""
    rows: list[tuple[Cell, ...]] = []
    for bits in found.key_bits:
        line = quoted.STAGES.get(bits)
        for stage, name in NAMES.items():
            said = None if line is None else getattr(line, stage)
            report, tacit = found.report[bits].mean(stage), found.tacit[bits].mean(stage)
            rows.append(
                (
                    str(bits),
                    name,
                    None if said is None else f"{said:,.2f}" if stage == "key" else f"{said:.3f}",
                    milliseconds(report),
                    milliseconds(tacit),
                    times(report / tacit),
                    f"{len(found.report[bits].key):,}" + ("" if line is None else f" of {line.repeats:,}"),
                )
            )
    return Table(
        columns=("Key bits", "Stage", "The report", "Its algorithms here", "Tacit", "Faster", "Repeats"),
        rows=rows,
        align="rlrrrrr",
        caption="Milliseconds, means over the repeats; the report's are 1,000, 100, 10, 3 and 1, each with a new key. "
        "How long a search for a prime takes is a matter of luck, so few repeats vary widely.",
    )


def keys(found: Measured) -> Table:
    """Return key generation: before, after, ours."""
    rows: list[tuple[Cell, ...]] = []
    for bits, before in quoted.KEY_BEFORE.items():
        factoring = found.factoring.get(bits)
        report, tacit = found.report.get(bits), found.tacit.get(bits)
        if factoring is None and report is None:
            continue
        rows.append(
            (
                str(bits),
                TOO_LONG if before is None else f"{before:,.2f}",
                None if factoring is None else _factored(factoring),
                _factored(found.without_curves[bits]) if bits in found.without_curves else None,
                f"{quoted.STAGES[bits].key:,.2f}",
                None if report is None else milliseconds(report.mean("key")),
                None if tacit is None else milliseconds(tacit.mean("key")),
                None if factoring is None else f"{factoring.tried - factoring.given_up} of {factoring.tried}",
            )
        )
    return Table(
        columns=(
            "Key bits",
            "Before: the report",
            "here",
            "without elliptic curves",
            "After: the report",
            "here",
            "Tacit",
            "Factored",
        ),
        rows=rows,
        align="rrrrrrrr",
        caption="Milliseconds per key. Before: any prime p, and p - 1 factored to know a primitive root. After: "
        "p = 2q + 1 with q prime. Tacit sieves q and p together. A factorisation that was given up counts as the "
        "seconds of the processor that it had: ≥ is the least the mean can be.",
    )


def _factored(row: Factoring) -> str:
    if not row.seconds:
        return f"given up after {row.limit:g} s"
    return ("≥ " if row.given_up else "") + milliseconds(row.mean)


def batches(found: Measured) -> Table:
    """Return the milliseconds per message of a batch, with a key each and with one key."""
    rows: list[tuple[Cell, ...]] = []
    for bits, own in found.report_batch.items():
        said = quoted.PER_MESSAGE[bits]
        tacit = found.tacit_batch[bits]
        rows += [
            (str(bits), "the report", f"{said[0]:.2f}", f"{said[1]:.3f}", None, times(said[0] / said[1])),
            (str(bits), "its algorithms here", *_pair(own.each, own.one), None, times(own.each / own.one)),
            (
                str(bits),
                "Tacit",
                *_pair(tacit.each, tacit.one),
                milliseconds(tacit.vector or 0.0),
                times(tacit.each / tacit.one),
            ),
        ]
    return Table(
        columns=("Key bits", "By", "A key each", "One key", "One key, one call", "Saves"),
        rows=rows,
        align="rlrrrr",
        caption=f"Milliseconds per message, {found.sizes.batch:,} messages encrypted and decrypted, keys included. "
        "The last column is a key each over one key.",
    )


def _pair(each: float, one: float) -> tuple[str, str]:
    return milliseconds(each), milliseconds(one)


def products(found: Measured) -> Table:
    """Return both ways to 5 times 24."""
    rows = [
        (
            "the report",
            str(quoted.PRODUCT),
            f"{quoted.TWO_DECRYPTIONS:g}",
            f"{quoted.ONE_DECRYPTION:g}",
            times(quoted.TWO_DECRYPTIONS / quoted.ONE_DECRYPTION),
        ),
        *(
            (name, str(row.result), milliseconds(row.two), milliseconds(row.one), times(row.two / row.one))
            for name, row in (("its algorithms here", found.report_product), ("Tacit", found.tacit_product))
        ),
    ]
    return Table(
        columns=("By", "5 × 24", "Two decryptions", "One, of the product", "Ratio"),
        rows=rows,
        align="lrrrr",
        caption=f"Milliseconds, mean of {found.sizes.product_repeats:,}; ours with keys of {quoted.MESSAGE_BITS} bits. "
        f"The report does not say how long its key was; by its own table one decryption took "
        f"{quoted.STAGES[quoted.MESSAGE_BITS].decrypt:g} ms at {quoted.MESSAGE_BITS} bits.",
    )


def powers(found: Measured) -> Table:
    """Return what a power costs bit by bit, and by Python's own function."""
    rows = [
        (str(bits), milliseconds(row["bit by bit"]), milliseconds(row["pow"]), times(row["bit by bit"] / row["pow"]))
        for bits, row in found.powers.items()
    ]
    return Table(
        columns=("Bits", "The report's mod_exp", "Python's pow", "Faster"),
        rows=rows,
        align="rrrr",
        caption="Milliseconds of one power with an exponent as long as the modulus.",
    )


def ciphertexts(found: Measured) -> Table:
    """Return ciphertexts of the report's number."""
    return Table(
        columns=("g^k mod p", f"{quoted.MESSAGE} · y^k mod p"),
        rows=[tuple(pair) for pair in found.ciphertexts],
        align="ll",
        caption=f"The number {quoted.MESSAGE}, encrypted {len(found.ciphertexts)} times under one key of "
        f"{quoted.MESSAGE_BITS} bits by the report's scheme.",
    )


def checks(found: Measured) -> Table:
    """Return PASS or FAIL for every operation."""
    caption = "Results beyond (p - 1) / 2 are right modulo p and up to the sign, which is how messages are encoded."
    return harness.table(found.checks, caption=caption)


def looks(found: Measured) -> Table:
    """Return what ciphertexts of one number look like, and what uniform numbers would."""
    seen = found.looks
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
        caption=f"The number {seen.message}, encrypted {seen.count:,} times by Tacit with one key of {seen.bits} bits.",
    )


def leak(found: Measured) -> Table:
    """Return how often an outsider guesses right whether an encrypted number is a square."""
    seen = found.guesses
    rows = [
        (name, f"{right} of {seen.count}", text)
        for right, name, text in (
            (seen.textbook, "the report's: g generates all numbers modulo p", "always: the scheme tells"),
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
