"""The comparison of encryptions as sections of a page."""

from __future__ import annotations

from collections.abc import Iterator

from tacit.report.page import Chart, Note, Part, Section, Table, Text, bars
from tacit_labs.bench.crypto.measured import Labs, Results
from tacit_labs.bench.crypto.targets import targets


def sections(results: Results) -> tuple[Section, ...]:
    """Return what was measured: the comparison, the aims of each backend, and the labs' operations."""
    return (
        Section(title="Encryption: how it was measured", parts=_measured(results)),
        Section(title="Encryption: side by side", parts=(*_charts(results), _comparison(results))),
        Section(title="Encryption: what it was meant to reach", parts=tuple(_aims(results))),
        Section(title="Encryption: the labs' operations", parts=(_labs(results.labs),)),
    )


def _measured(results: Results) -> tuple[Part, ...]:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in {**machine.packages, **results.peers}.items())
    samples = ", ".join(f"{size} ({who})" for who, size in results.samples.items())
    parts: list[Part] = [
        Text(
            text=f"{results.floats:,} floats under Paillier keys of {results.key_bits} bits (TenSEAL: lattices), "
            f"one thread, best of {results.repeats} in turn with the others. {machine.processor}, "
            f"{machine.cores} cores, Python {machine.python}; {versions}."
        ),
        Text(text=f"* timed on a sample of floats and scaled to all: {samples}."),
    ]
    if results.quick:
        parts.append(
            Note(
                text="**Quick run.** Smaller samples and fewer repeats than `tacit bench crypto` in full.", tone="warn"
            )
        )
    for name, why in results.absent.items():
        advice = "" if name.startswith("Tacit") else " `pip install 'tacit[bench]'` brings the peers."
        parts.append(Note(text=f"**Left out: {name}.** {why}.{advice}", tone="warn"))
    return tuple(parts)


def _charts(results: Results) -> Iterator[Chart]:
    rows = [row for row in results.rows if "pool" not in row.name]
    panels = (
        ("Encryption", "seconds", [row.encrypt for row in rows]),
        ("Decryption", "seconds", [row.decrypt for row in rows]),
        ("Size", "bytes per float", [row.bytes for row in rows]),
    )
    for title, unit, values in panels:
        yield bars(
            title=title,
            categories=[row.title for row in rows],
            series={
                "Tacit": [value if row.is_ours else None for row, value in zip(rows, values, strict=True)],
                "others": [None if row.is_ours else value for row, value in zip(rows, values, strict=True)],
            },
            styles={"others": 2},
            stacked=True,
            y_title=f"{unit}, on a logarithmic axis",
            y_format=".3g",
            log_y=True,
            horizontal=True,
            height=150 + 26 * len(rows),
            caption="Shorter is better.",
        )


def _comparison(results: Results) -> Table:
    rows = []
    for row in results.rows:
        against = (row.times_phe.encrypt, row.times_phe.decrypt) if row.times_phe else (None, None)
        rows.append((row.title, row.encrypt, row.decrypt, row.sum, row.bytes, *against))
    return Table(
        columns=(
            "",
            "encrypt, s",
            "decrypt, s",
            "sum of 100, s",
            "bytes per float",
            "encrypt, x phe",
            "decrypt, x phe",
        ),
        rows=tuple(rows),
        align="lrrrrrr",
        caption="Seconds for the whole vector; the last two columns say how many times as fast as phe.",
    )


def _aims(results: Results) -> list[Table]:
    tables = []
    for backend in results.own:
        aims = list(targets(results, backend=backend))
        rows = [
            (
                aim.name.strip(),
                f"{'at least' if aim.at_least else 'at most'} {aim.aim:,g} {aim.unit}",
                f"{aim.reached:,.0f} {aim.unit}" if aim.reached >= 100 else f"{aim.reached:.3g} {aim.unit}",
                "met" if aim.met else "missed",
            )
            for aim in aims
        ]
        tables.append(
            Table(
                columns=("aim", "wanted", "reached", ""),
                rows=tuple(rows),
                align="lrrl",
                caption=f"With the backend {backend}.",
                tones={(number, 3): "good" if aim.met else "bad" for number, aim in enumerate(aims)},
            )
        )
    return tables


def _labs(labs: Labs) -> Table:
    sizes = list(next(iter(labs.seconds.values())))
    scaled = "" if labs.timed == labs.repeats else f", scaled from {labs.timed}"
    return Table(
        columns=("", *(f"{bits} bits, s" for bits in sizes)),
        rows=tuple(
            (side if side == "phe" else f"Tacit ({side})", *(seconds[bits] for bits in sizes))
            for side, seconds in labs.seconds.items()
        ),
        caption=f"{labs.repeats:,} times two encryptions, their sum and its decryption, keys of {labs.key_bits} "
        f"bits (too short for use){scaled}.",
    )
