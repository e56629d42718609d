"""What both backends refuse, in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.crypto.rows import Rows, not_below


def check_modulus(modulus: int) -> None:
    """Refuse what is no modulus of a ring here."""
    if modulus < 3 or modulus % 2 == 0:
        shown = hex(modulus) if modulus.bit_length() <= 64 else f"an even number of {modulus.bit_length()} bits"
        raise ValueError(f"The modulus is {shown}, expected an odd number of at least 3.")


def check_divisor(divisor: int) -> None:
    """Refuse a divisor that has no inverse modulo a power of two."""
    if divisor < 1 or divisor % 2 == 0:
        raise ValueError("The divisor is even or not positive, expected an odd number of at least 1.")


def check_counts(vectors: Sequence[Rows]) -> int:
    """Return how many rows all vectors have."""
    counts = [len(vector) for vector in vectors]
    if not counts:
        raise ValueError("No vector was given, expected at least one.")
    if len(set(counts)) > 1:
        raise ValueError(f"The vectors have {counts} rows, expected the same number in each.")
    return counts[0]


def check_below(rows: Rows, modulus: int) -> None:
    """Refuse rows that are not reduced."""
    outside = not_below(rows, modulus)
    if len(outside):
        raise ValueError(
            f"{len(outside)} of {len(rows)} rows are not below the modulus (the first is row {outside[0]}), expected "
            "reduced numbers: `affine([(rows, 1)], 0)` reduces them."
        )


def check_exponent(exponent: int) -> None:
    """Refuse a negative exponent; its value may be secret."""
    if exponent < 0:
        raise ValueError("The exponent is negative, expected at least 0: invert the bases first.")


def check_table(bits: int) -> None:
    """Refuse a table for no exponents."""
    if bits < 1:
        raise ValueError(f"The table is for exponents of {bits} bits, expected at least 1.")


def check_exponents(exponents: Rows, bits: int) -> None:
    """Refuse exponents that a table of ``bits`` bits does not reach."""
    outside = not_below(exponents, 1 << bits)
    if len(outside):
        raise ValueError(
            f"{len(outside)} of {len(exponents)} exponents have more than {bits} bits (the first is number "
            f"{outside[0]}), expected none: build the table for longer ones."
        )
