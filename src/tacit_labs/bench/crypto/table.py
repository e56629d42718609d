"""The comparison of encryptions as text."""

from __future__ import annotations

from tacit_labs.bench.crypto.measured import Labs, Results
from tacit_labs.bench.crypto.targets import targets


def table(results: Results) -> str:
    """Return everything that was measured, for people."""
    parts = [_heading(results), _comparison(results)]
    parts += [f"left out: {name} ({why})" for name, why in results.absent.items()]
    parts += [_aims(results, backend) for backend in results.own]
    parts.append(_labs(results.labs))
    return "\n\n".join(parts)


def _heading(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in {**machine.packages, **results.peers}.items())
    samples = ", ".join(f"{size} ({who})" for who, size in results.samples.items())
    return (
        f"{results.floats:,} floats, keys of {results.key_bits} bits, one thread, best of {results.repeats}\n"
        f"{machine.processor}, {machine.cores} cores, Python {machine.python}; {versions}\n"
        f"two independent processes get {results.two_processes_against_one:.2f}x done of what one does, just now: "
        "no figure of two cores can be above that\n"
        f"* timed on a sample of floats and scaled to all: {samples}"
    )


def _comparison(results: Results) -> str:
    columns = (
        f"{'encrypt s':>11}{'decrypt s':>11}{'sum of 100 s':>14}{'bytes/float':>13}{'x phe: encrypt':>16}{'decrypt':>9}"
    )
    lines = [f"{'':54}{columns}"]
    for row in results.rows:
        times = row.times_phe
        against = f"{_times(times.encrypt):>16}{_times(times.decrypt):>9}" if times else ""
        numbers = f"{row.encrypt:>11.4g}{row.decrypt:>11.4g}{row.sum:>14.4g}{row.bytes:>13.1f}"
        lines.append(f"{row.title:54}{numbers}{against}")
    return "\n".join(lines)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _aims(results: Results, backend: str) -> str:
    lines = [f"{f'aims, with {backend}':48}{'aim':>12}{'reached':>12}"]
    for target in targets(results, backend=backend):
        sign = ">=" if target.at_least else "<="
        number = f"{target.reached:,.0f}" if target.reached >= 100 else f"{target.reached:.3g}"
        aim, reached = f"{sign} {target.aim:,g} {target.unit}", f"{number} {target.unit}"
        lines.append(f"{target.name:48}{aim:>12}{reached:>12}  {'' if target.met else 'missed'}".rstrip())
    return "\n".join(lines)


def _labs(labs: Labs) -> str:
    sizes = list(next(iter(labs.seconds.values())))
    header = "".join(f"{f'{bits} bits':>12}" for bits in sizes)
    lines = [
        f"{labs.repeats:,} x (two encryptions, their sum, its decryption), {labs.key_bits}-bit keys, seconds"
        + ("" if labs.timed == labs.repeats else f", scaled from {labs.timed}"),
        f"{'':20}{header}",
    ]
    for side, seconds in labs.seconds.items():
        name = side if side == "phe" else f"Tacit ({side})"
        lines.append(f"{name:20}" + "".join(f"{seconds[bits]:>12.3f}" for bits in sizes))
    return "\n".join(lines)
