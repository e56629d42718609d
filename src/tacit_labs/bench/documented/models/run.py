"""All models, one after the other; what is known so far is handed over after each measurement."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tacit.errors import ConfigError
from tacit_labs.bench.documented.models import around, few, real, rounds, steps
from tacit_labs.bench.documented.models.zoo import ZOO
from tacit_labs.bench.machine import describe

PARTS = ("around", "rounds", "few", "real", "steps")
Results = dict[str, Any]
Job = Callable[[], Mapping[str, Any]]


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
        parts: what is ``around`` training, ``rounds`` beside a loop, those of ``few`` clients and small models, the
            same with ``real`` clients of unequal size, ``steps`` of DP-SGD beside plain ones and Opacus; all if empty,
            few clients, which have models of their own, on a CPU and where no models are named.
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
    trained = (() if text is None else real.SPOKEN) + (() if table is None else real.WORKED)
    if "real" in parts and models and not set(models) & set(trained):
        raise ConfigError(
            f"Part real has no clients for {', '.join(models)}: speakers (--text) train {', '.join(real.SPOKEN)}, "
            f"trades (--table) {', '.join(real.WORKED)}. Name one of these, with its clients, or leave the models out."
        )
    if "few" in parts and models:
        raise ConfigError(
            f"Part few has models of its own, and {', '.join(models)} is none of them: {', '.join(few.OTHERS)}. Leave "
            "the models out, or choose another part."
        )
    if gpu is not None and gpu >= torch.cuda.device_count():
        raise ConfigError(f"There is no GPU {gpu} here, but {torch.cuda.device_count()}. Leave --gpu out.")
    device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
    machine = asdict(describe(["torch", "opacus"])) | (
        {} if gpu is None else {"gpu": torch.cuda.get_device_name(device)}
    )
    results: Results = {"machine": machine} | {part: {} for part in PARTS}
    chosen = _Chosen(models=models or list(ZOO), device=device, text=text, table=table, quick=quick)
    for part in parts or [part for part in PARTS if part != "few" or (gpu is None and not models)]:
        for words, name, work in chosen.jobs(part):
            progress(words)
            _measured(results[part], name, work)
            so_far(results)
    return results


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """What is to be measured, and where."""

    models: Sequence[str]
    device: torch.device
    text: Path | None
    table: Path | None
    quick: bool

    @property
    def _repeats(self) -> int:
        return 1 if self.quick else 2 if self.device.type == "cpu" else 3

    def jobs(self, part: str) -> Iterator[tuple[str, str, Job]]:
        """Yield what a part measures: words for people, the name of the result, and what measures it."""
        device, on_cpu = self.device, self.device.type == "cpu"
        if part == "around":
            rounds_taken = 3 if self.quick else 30
            yield "what is around training in a round", "cnn", lambda: around.measure(device, repeats=rounds_taken)
        elif part == "rounds":
            for name in self.models:
                for words, size in rounds.sizes(ZOO[name], device, quick=self.quick).items():
                    yield f"{name}, {size.words}", f"{name}, {words}", self._round(ZOO[name], size, self._repeats)
        elif part == "few":
            for name, other in few.OTHERS.items():
                for words, size in few.sizes(quick=self.quick).items():
                    repeats = 1 if self.quick else 2 * self._repeats
                    yield f"{name}, {size.words}", f"{name}, {words}", self._round(other, size, repeats)
        elif part == "real":
            for name, own in real.cohorts(text=self.text, table=self.table, quick=self.quick or on_cpu):
                if name in self.models:
                    yield f"{name}, {own.words}", name, partial(rounds.measure, ZOO[name], own, device, repeats=1)
        else:
            for name in self.models:
                batch = (8 if ZOO[name].heavy else 64) if on_cpu else 256
                work = partial(steps.measure, ZOO[name], device, batch=batch, repeats=5 * self._repeats)
                yield f"{name}, a step of DP-SGD", name, work

    def _round(self, model: rounds.Model, size: rounds.Size, repeats: int) -> Job:
        return lambda: rounds.measure(model, size.cohort(model), self.device, repeats=repeats)


def _measured(into: dict[str, Any], name: str, work: Job) -> None:
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
    for part, head in (("rounds", "a round"), ("few", "few clients"), ("real", "real clients")):
        if results[part]:
            lines += ["", f"{head:24}{'clients x examples':40}{'form':10}{'loop s':>9}{'Tacit s':>9}{'faster':>9}"]
        for name, row in results[part].items():
            if "failed" in row:
                lines.append(f"{name:24}failed: {row['failed']}")
                continue
            theirs = min(taken for who, taken in row["seconds"].items() if who != "tacit")
            figures = f"{theirs:>9.3f}{row['seconds']['tacit']:>9.3f}{row['faster']:>8.2f}x"
            lines.append(f"{name:24}{row['size']:40}{row['form']:10}{figures}  {row['reason']}".rstrip())
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
