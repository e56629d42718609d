"""All models, one after the other; what is known so far is handed over after each measurement."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tacit.errors import ConfigError
from tacit_labs.bench.documented.models import around, real, rounds, steps
from tacit_labs.bench.documented.models.zoo import ZOO
from tacit_labs.bench.machine import describe

PARTS = ("around", "rounds", "real", "steps")
Results = dict[str, Any]


def measure(
    *,
    models: Sequence[str] = (),
    parts: Sequence[str] = (),
    gpu: int | None = None,
    text: Path | None = None,
    table: Path | None = None,
    quick: bool = False,
    progress: Callable[[str], None] = lambda _: None,
    so_far: Callable[[Results], None] = lambda _: None,
) -> Results:
    """Measure and return plain values.

    Args:
        models: which; all if empty.
        parts: what is ``around`` training, ``rounds`` beside a loop, the same with ``real`` clients of unequal size,
            ``steps`` of DP-SGD beside plain ones and Opacus; all if empty.
        gpu: the number of the GPU; the CPU if None.
        text: plays, for real speakers; they are left out if None.
        table: the Adult table, for real trades; they are left out if None.
        quick: fewer clients and repetitions.
        progress: is told what is measured.
        so_far: is given the results after each measurement.
    """
    for asked, known, what in ((models, ZOO, "model"), (parts, PARTS, "part")):
        unknown = [name for name in asked if name not in known]
        if unknown:
            raise ConfigError(f"Unknown {what} {unknown[0]!r}. Known: {', '.join(known)}.")
    if "real" in parts and text is None and table is None:
        raise ConfigError("Part real trains real clients: say where they are with --text, --table or both.")
    if gpu is not None and gpu >= torch.cuda.device_count():
        raise ConfigError(f"There is no GPU {gpu} here, but {torch.cuda.device_count()}. Leave --gpu out.")
    device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
    machine = asdict(describe(["torch", "opacus"])) | (
        {} if gpu is None else {"gpu": torch.cuda.get_device_name(device)}
    )
    results: Results = {"machine": machine} | {part: {} for part in PARTS}
    repeats = 1 if quick else 2 if gpu is None else 3
    for part in parts or PARTS:
        if part == "around":
            progress("what is around training in a round")
            _measured(results[part], "cnn", lambda: around.measure(device, repeats=3 if quick else 30))
            so_far(results)
            continue
        if part == "real":
            for name, own in real.cohorts(text=text, table=table, quick=quick or gpu is None):
                if not models or name in models:
                    progress(f"{name}, {own.words}")
                    _measured(
                        results[part],
                        name,
                        lambda n=name, o=own: rounds.measure(ZOO[n], o, device, repeats=1),  # type: ignore[misc]  # bound now
                    )
                    so_far(results)
            continue
        for name in models or list(ZOO):
            entry = ZOO[name]
            if part == "steps":
                progress(f"{name}, a step of DP-SGD")
                batch = (8 if entry.heavy else 64) if gpu is None else 256
                _measured(
                    results[part],
                    name,
                    lambda e=entry, b=batch: steps.measure(e, device, batch=b, repeats=5 * repeats),  # type: ignore[misc]  # bound now
                )
                so_far(results)
                continue
            for size, chosen in rounds.sizes(entry, device, quick=quick).items():
                progress(f"{name}, {chosen.words}")
                _measured(
                    results[part],
                    f"{name}, {size}",
                    lambda e=entry, c=chosen: rounds.measure(e, c.cohort(e), device, repeats=repeats),  # type: ignore[misc]  # bound now
                )
                so_far(results)
    return results


def _measured(into: dict[str, Any], name: str, work: Callable[[], Mapping[str, Any]]) -> None:
    """Keep what was measured, or in a line why not: one model must not cost the others their figures."""
    try:
        into[name] = work()
    except Exception as error:
        into[name] = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def table(results: Results) -> str:
    """Return the results for people."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    lines = [f"{machine.get('gpu', machine['processor'])}, {machine['cores']} cores; {versions}"]
    for row in results["around"].values():
        told = (
            row.get("failed")
            or f"{row['round']:.1f} ms, {row['train']:.1f} of it training, {row['around']:.1f} around it"
        )
        lines.append(f"100 clients of 60 with the CNN, clipped and with noise: {told}")
    for part, head in (("rounds", "a round"), ("real", "real clients")):
        if results[part]:
            lines += ["", f"{head:18}{'clients x examples':40}{'form':10}{'loop s':>9}{'Tacit s':>9}{'faster':>9}"]
        for name, row in results[part].items():
            if "failed" in row:
                lines.append(f"{name:18}failed: {row['failed']}")
                continue
            theirs = min(taken for who, taken in row["seconds"].items() if who != "tacit")
            figures = f"{theirs:>9.3f}{row['seconds']['tacit']:>9.3f}{row['faster']:>8.2f}x"
            lines.append(f"{name:18}{row['size']:40}{row['form']:10}{figures}  {row['reason']}".rstrip())
    if results["steps"]:
        names = ("tacit", "opacus hooks", "opacus functorch", "opacus ghost")
        lines += ["", f"{'a DP-SGD step':18}{'form':14}{'plain ms':>9}" + "".join(f"{name:>18}" for name in names)]
    for name, row in results["steps"].items():
        if "failed" in row:
            lines.append(f"{name:18}failed: {row['failed']}")
            continue
        cells = [_cell(row, peer) for peer in names]
        plain = row["milliseconds"]["plain"]
        lines.append(f"{name:18}{row['form']:14}{plain:>9.2f}" + "".join(cells) + f"  {row['reason']}".rstrip())
    return "\n".join(lines)


def _cell(row: Mapping[str, Any], name: str) -> str:
    if name not in row["ratio"]:
        return f"{'-':>18}"
    memory = f" {row['memory'][name]:.2f}x MB" if name in row["memory"] else ""
    return f"{row['ratio'][name]:.2f}x{memory}".rjust(18)
