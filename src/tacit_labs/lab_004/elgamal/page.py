"""What is shown of report 004's ElGamal, in the order of the report."""

from __future__ import annotations

from tacit.report.page import Note, Row, Section, Table, Text
from tacit_labs.harness import checks
from tacit_labs.harness.experiment import Finding
from tacit_labs.harness.measuring import named, times
from tacit_labs.lab_004.elgamal import charts, quoted, tables
from tacit_labs.lab_004.elgamal.measured import Measured
from tacit_labs.lab_004.elgamal.tables import milliseconds

_UNIFORM = (
    "Looking uniform is necessary and proves nothing: that nobody can tell ciphertexts apart rests on the decisional "
    "Diffie-Hellman assumption. About one run in two thousand shows a FAIL here by chance."
)
_LEAK = (
    "Ciphertexts that differ do not exclude a leak. The report's scheme tells a bit of every message: where g "
    "generates all numbers modulo p, Legendre symbols of the key and of the first half give that of the mask, and so "
    "that of the message. Tacit works in the squares only, so every symbol is 1."
)


def sections(found: Measured) -> tuple[Section, ...]:
    """Return the figures and tables."""
    return (
        Section(
            title="ElGamal: three stages",
            parts=(
                Note(text="**Keys below 2048 bits are too short for use.** They are the report's.", tone="warn"),
                charts.stages(found),
                tables.stages(found),
            ),
        ),
        Section(
            title="ElGamal: randomness",
            lead=_UNIFORM,
            parts=(
                tables.ciphertexts(found),
                tables.looks(found),
                Row(parts=(charts.places(found), charts.flips(found))),
                tables.leak(found),
                Text(text=_LEAK),
            ),
        ),
        Section(
            title="ElGamal: products under encryption",
            parts=(
                tables.products(found),
                checks.verdict(found.checks, named(found.here.backend)),
                tables.checks(found),
            ),
        ),
        Section(title="ElGamal: key generation, before and after", parts=(charts.keys(found), tables.keys(found))),
        Section(
            title="ElGamal: a batch",
            parts=(charts.batches(found), tables.batches(found), Text(text=_sums())),
        ),
        Section(title="ElGamal: powers", parts=(tables.powers(found),)),
    )


def made_tables(found: Measured) -> dict[str, Table]:
    """Return the tables for the terminal and as CSV."""
    return {
        "stages": tables.stages(found),
        "keys": tables.keys(found),
        "batches": tables.batches(found),
        "products": tables.products(found),
        "randomness": tables.looks(found),
        "leak": tables.leak(found),
        "powers": tables.powers(found),
        "checks": tables.checks(found),
    }


def _sums() -> str:
    """Return what the report's own stages make of its batch, which is arithmetic and no measurement."""
    parts = []
    for bits, (_, one) in quoted.PER_MESSAGE.items():
        row = quoted.STAGES[bits]
        parts.append(f"{row.key / quoted.BATCH + row.encrypt + row.decrypt:.3f} at {bits} bits (it has {one:g})")
    return (
        "By the report's own table of stages, a thousandth of a key, an encryption and a decryption make "
        + ", ".join(parts)
        + " milliseconds per message: the two tables were measured apart."
    )


def findings(found: Measured) -> tuple[Finding, ...]:
    """Return the report's figures beside ours."""
    return (*_stages(found), *_keys(found), *_batch(found), _product(found), _random(found))


def _stages(found: Measured) -> list[Finding]:
    longest = max(bits for bits in found.key_bits if bits in quoted.STAGES)
    said, report, tacit = quoted.STAGES[longest], found.report[longest], found.tacit[longest]
    return [
        Finding(
            what=f"the three stages at {longest} bits, milliseconds",
            original=f"{said.key:,.2f}, {said.encrypt:g}, {said.decrypt:g} ({_count(said.repeats)})",
            ours="Tacit "
            + ", ".join(milliseconds(tacit.mean(stage)) for stage in ("key", "encrypt", "decrypt"))
            + "; the report's algorithms here "
            + ", ".join(milliseconds(report.mean(stage)) for stage in ("key", "encrypt", "decrypt"))
            + f" ({_count(len(report.key))})",
            why="Tacit sieves q and 2q + 1 together before any test and computes with its "
            f"{found.here.backend} core.{_slower(found)}",
            headline=True,
        )
    ]


def _slower(found: Measured) -> str:
    sizes = [b for b in found.key_bits if found.tacit[b].mean("encrypt") > found.report[b].mean("encrypt")]
    if not sizes:
        return ""
    return (
        f" At {' and '.join(map(str, sizes))} bits a single encryption takes it longer than Python's integers: it "
        "keeps numbers as rows, for many at a time."
    )


def _keys(found: Measured) -> list[Finding]:
    done = [bits for bits, row in found.factoring.items() if row.seconds and quoted.KEY_BEFORE.get(bits)]
    if not done:
        return []
    bits = max(done)
    row, report, tacit = found.factoring[bits], found.report.get(bits), found.tacit.get(bits)
    said = quoted.KEY_BEFORE[bits]
    after = "" if report is None else f" → {milliseconds(report.mean('key'))}"
    own = "" if tacit is None else f" → Tacit {milliseconds(tacit.mean('key'))}"
    return [
        Finding(
            what=f"key generation at {bits} bits: before, after, milliseconds",
            original=f"{said:,.2f} → {quoted.STAGES[bits].key:,.2f}; from 512 bits on “用时过长” (too long) before",
            ours=f"{'≥ ' if row.given_up else ''}{milliseconds(row.mean)}{after}{own}",
            why=f"Before, p - 1 is factored; the time of that varies from key to key by orders of magnitude "
            f"({milliseconds(min(row.seconds))} to {milliseconds(max(row.seconds))} here). SymPy {found.sympy} factors "
            f"with elliptic curves; without them {_without(found)}. The version that the report used is not known.",
            headline=True,
        ),
        _order(),
    ]


def _without(found: Measured) -> str:
    return " and ".join(
        f"{bits} bits take {'at least ' if row.given_up else ''}{milliseconds(row.mean)} in the mean of {row.tried} "
        f"keys (the report: {quoted.KEY_BEFORE[bits]:,.2f})"
        for bits, row in found.without_curves.items()
    )


def _order() -> Finding:
    """Return what the report's own times say of the order that it names, which is arithmetic and no measurement."""
    first, second, third = (float(quoted.KEY_BEFORE[bits] or 0.0) for bits in (64, 128, 256))
    return Finding(
        what="the order of key generation before",
        original="“O(2^(n/2))” for n bits",
        ours=f"by the report's own times {times(second / first)} from 64 to 128 bits and {times(third / second)} from "
        f"128 to 256, where 2^(n/2) grows {2.0**32:.2g} and {2.0**64:.2g} times",
        why="2^(n/2) is what trying all divisors takes in the worst case. SymPy looks for small factors first, by "
        "Pollard's methods and by elliptic curves, and splits what is left.",
    )


def _batch(found: Measured) -> list[Finding]:
    said = []
    for bits, own in found.report_batch.items():
        each, one = quoted.PER_MESSAGE[bits]
        tacit = found.tacit_batch[bits]
        said.append(
            Finding(
                what=f"{found.sizes.batch:,} messages at {bits} bits: a key each → one key, milliseconds per message",
                original=f"{each:g} → {one:g}, {times(each / one)} less",
                ours=f"{milliseconds(own.each)} → {milliseconds(own.one)}, {times(own.each / own.one)} less; Tacit "
                f"{milliseconds(tacit.each)} → {milliseconds(tacit.one)}, in one call "
                f"{milliseconds(tacit.vector or 0.0)}",
                why="Nearly all of it is the search for a prime, once per message or once.",
                headline=bits == max(found.report_batch),
            )
        )
    return said


def _product(found: Measured) -> Finding:
    report, tacit = found.report_product, found.tacit_product
    return Finding(
        what=f"{quoted.LEFT} × {quoted.RIGHT} = {quoted.PRODUCT} under encryption, milliseconds",
        original=f"two decryptions {quoted.TWO_DECRYPTIONS:g}, one of the product {quoted.ONE_DECRYPTION:g}: about "
        "“两倍” (twice)",
        ours=f"{milliseconds(report.two)} and {milliseconds(report.one)}, {times(report.two / report.one)}; Tacit "
        f"{milliseconds(tacit.two)} and {milliseconds(tacit.one)}, {times(tacit.two / tacit.one)}; "
        f"{checks.kinds_passed(found.checks)}",
        why="A product of ciphertexts is next to nothing beside a decryption"
        + (
            "."
            if tacit.two / tacit.one > 1.8
            else ", in Python's integers; Tacit's, of rows of bytes, costs a share of one where keys are this short."
        ),
        headline=True,
    )


def _random(found: Measured) -> Finding:
    seen, guessed = found.looks, found.guesses
    different = len({tuple(pair) for pair in found.ciphertexts})
    return Finding(
        what=f"{quoted.MESSAGE} encrypted again and again, {quoted.MESSAGE_BITS}-bit key",
        original="every ciphertext differs, “因此ElGamal算法具有随机性” (so ElGamal is randomised)",
        ours=f"{different} of {len(found.ciphertexts)} by its scheme and {seen.different:,} of {seen.count:,} by "
        "Tacit's differ",
        why="The same. But the report's ciphertexts tell whether the number is a square modulo p: an outsider was "
        f"right {guessed.textbook} of {guessed.count} times, and {guessed.tacit} times with Tacit's, which is chance.",
        headline=True,
    )


def settings_words(found: Measured) -> str:
    """Return what was run, in words."""
    return (
        f"ElGamal: the report's algorithms, written anew in Python's integers with SymPy {found.sympy} kept to them, "
        "and Tacit's, with keys of the same lengths and a new safe prime for each; processor time of one thread, means "
        f"as in the report. {found.here.words()}"
    )


def _count(repeats: int) -> str:
    return "once" if repeats == 1 else f"mean of {repeats:,}"
