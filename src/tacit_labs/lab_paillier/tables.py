"""The Paillier lab's tables, from what was measured, the lab's figures beside."""

from __future__ import annotations

from tacit.report.page import Cell, Table, Tone
from tacit.report.words import bytes_text, percent
from tacit_labs.harness import checks as harness
from tacit_labs.harness import quoted
from tacit_labs.harness.experiment import Sheet
from tacit_labs.harness.measuring import LAB, duration, makers, named, pick, times
from tacit_labs.lab_paillier.jobs import OPERATIONS
from tacit_labs.lab_paillier.learning import EncryptedEpoch
from tacit_labs.lab_paillier.measured import Measured

_GRID_ROWS = ("encrypt", "add", "decrypt")


def checks(found: Measured) -> Table:
    """Return PASS or FAIL for every operation."""
    caption = "Each result was decrypted and compared with Python's own. Beyond n/2 it wraps around, as it must."
    return harness.table(found.checks, caption=caption)


def grid(found: Measured) -> Table:
    """Return three operations by the lengths of three integers."""
    lengths = found.sizes.integers
    rows = []
    for operation in _GRID_ROWS:
        for by in makers(found.grid):
            cells = [duration(pick(found.grid, by=by, bits=bits).seconds[operation]) for bits in lengths]
            rows.append((operation, named(by), *cells))
    return Table(
        columns=("Operation", "By", *(f"{bits}-bit integers" for bits in lengths)),
        rows=rows,
        align="ll" + "r" * len(lengths),
        caption=f"One operation, key of {found.sizes.key_bits} bits (too short for use), one thread.",
    )


def grid_sheet(found: Measured) -> Sheet:
    """Return the whole grid in seconds."""
    rows = [
        (operation, row.by, row.bits, row.seconds[operation])
        for operation in OPERATIONS
        for row in found.grid
        if operation in row.seconds
    ]
    return Sheet(columns=("operation", "by", "integer_bits", "seconds"), rows=rows)


def exercises(found: Measured) -> Table:
    """Return the lab's 1,000 operations by the length of the integers."""
    lengths = found.sizes.integers
    rows: list[tuple[Cell, ...]] = [(LAB, *(_or_dash(quoted.PAILLIER_EXERCISE.get(bits)) for bits in lengths), "", "")]
    for by in makers(found.exercises):
        own = [pick(found.exercises, by=by, bits=bits) for bits in lengths]
        against = [
            quoted.PAILLIER_EXERCISE[row.bits] / row.thousand for row in own if row.bits in quoted.PAILLIER_EXERCISE
        ]
        wrong = sum(row.wrong for row in own)
        counted = own[0].count
        how = "" if counted == quoted.PAILLIER_REPEATS else f" (scaled from {counted:,})"
        ratio = f"{times(min(against))} to {times(max(against))}" if against else "-"
        rows.append(
            (
                named(by) + how,
                *(duration(row.thousand) for row in own),
                ratio,
                "PASS" if wrong == 0 else f"FAIL: {wrong} wrong",
            )
        )
    tones: dict[tuple[int, int], Tone] = {
        (row, len(lengths) + 2): "good" if cells[-1] == "PASS" else "bad" for row, cells in enumerate(rows) if cells[-1]
    }
    return Table(
        columns=("By", *(f"{bits}-bit integers" for bits in lengths), "Faster than the lab", "Sums"),
        rows=rows,
        align="l" + "r" * len(lengths) + "rl",
        tones=tones,
        caption=(
            f"{quoted.PAILLIER_REPEATS:,} times two encryptions, their sum and its decryption, key of "
            f"{found.sizes.key_bits} bits (too short for use), one thread. All sums were checked."
        ),
    )


def learning(found: Measured) -> Table:
    """Return an epoch in the clear and encrypted, the lab's beside ours."""
    plain = found.plain.epoch_seconds
    rows: list[tuple[Cell, ...]] = [
        ("the lab, plain (RTX 2080 Ti)", None, None, duration(quoted.PLAIN_EPOCH), "1x", None, None),
        (
            "the lab, encrypted",
            duration(quoted.CLIENT_ENCRYPTS),
            duration(quoted.CLIENT_DECRYPTS),
            duration(quoted.ENCRYPTED_EPOCH),
            times(quoted.ENCRYPTED_EPOCH / quoted.PLAIN_EPOCH),
            None,
            None,
        ),
    ]
    rows += [
        (
            f"Tacit, {one.way}",
            duration(one.client_encrypts) if isinstance(one, EncryptedEpoch) else None,
            duration(one.sum_decrypted) if isinstance(one, EncryptedEpoch) else None,
            duration(one.epoch_seconds),
            times(one.epoch_seconds / plain),
            bytes_text(one.client_bytes),
            percent(one.test_accuracy),
        )
        for one in found.epochs
    ]
    return Table(
        columns=(
            "Run",
            "Encrypt, per client",
            "Decrypt",
            "Epoch",
            "Over plain",
            "Upload, per client",
            "Test accuracy",
        ),
        rows=rows,
        align="lrrrrrr",
        caption=(
            "The lab's figures are quoted from its report. Ours are the stages of the fastest round but the first, by "
            f"the clock; accuracy is that after {found.plain.rounds} epochs. In the lab every client "
            "decrypted; in Tacit the sum of a round is opened once."
        ),
    )


def ladder(found: Measured) -> Table:
    """Return the ways to encrypt an update, each against the first."""
    rows: list[tuple[Cell, ...]] = []
    for bits in (found.sizes.key_bits, found.sizes.safe_bits):
        first, *others = found.steps(bits)
        rows += [
            (
                str(bits),
                one.way,
                named(one.by),
                duration(one.encrypt),
                times(first.encrypt / one.encrypt),
                _or_dash(one.decrypt),
                times(first.decrypt / one.decrypt) if first.decrypt and one.decrypt else None,
                f"{one.bytes:,.1f}",
                f"{one.sample}, extrapolated" if one.sample else "all",
            )
            for one in (first, *others)
        ]
    return Table(
        columns=(
            "Key bits",
            "Ciphertexts",
            "By",
            "Encrypt",
            "Faster",
            "Decrypt",
            "Faster",
            "Bytes per number",
            "Measured on",
        ),
        rows=rows,
        align="rllrrrrrl",
        caption=(
            f"An update of {found.sizes.length:,} floats of 24 bits, one thread, processor time. Bytes are those "
            "of an upload, divided by the numbers."
        ),
    )


def _or_dash(seconds: float | None) -> str | None:
    return None if seconds is None else duration(seconds)
