"""``tacit compare``: protections side by side, made here or read from finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit import limits
from tacit.cli import completion, options
from tacit.cli.output import JsonFlag, Quiet, console, emit_json
from tacit.cli.watching import watching
from tacit.errors import ConfigError, RunError
from tacit.storage import is_folder, is_there

if TYPE_CHECKING:
    from tacit.studies.plan import Order
    from tacit.studies.results import Comparison

_COMPARE = "Comparison"
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB.yaml] [KEY=VALUE]... [MODE:KEY=VALUE]... | FOLDER...",
        help="With --modes: a job file, settings that all modes share, and settings of one mode such as "
        "dp:optimizer.lr=0.1. Without: the folders of finished runs.",
        show_default=False,
        autocompletion=completion.of_compared,
    ),
]
Modes = Annotated[
    str | None,
    typer.Option(
        help="Modes to run, such as plain,dp,local-dp.",
        rich_help_panel=_COMPARE,
        show_default=False,
        autocompletion=completion.of_modes,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Folder of the comparison.", rich_help_panel="Output", show_default="runs/compare-..."),
]


@options.configured(
    *options.without(options.RUN, "mode", "out"),
    words=Words,
    refused={"mode": "a comparison has several modes. Name them with --modes."},
)
def compare(
    *,
    modes: Modes = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Run each mode with so many seeds.", rich_help_panel=_COMPARE, show_default="1"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=limits.WORKERS, help="Runs at a time.", rich_help_panel=_COMPARE, show_default="one per core"
        ),
    ] = None,
    asked: options.Asked,
    out: Out = None,
    force: Annotated[
        bool, typer.Option("--force", help="Begin anew in a folder that holds a comparison.", rich_help_panel="Output")
    ] = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare protections: same data, split, model and seeds; one table and one page.

    Modes that need a budget have epsilon 8 where neither a budget nor a noise is given. The same command with the same
    --out goes on with a comparison that was stopped; modes and seeds can be added.

    Examples:
      tacit compare --modes plain,dp,local-dp --rounds 20 --seeds 3 --out runs/cmp
      tacit compare --modes plain,dp-sgd dp-sgd:optimizer.lr=1 --epsilon 3
      tacit compare --modes plain,paillier,masks --dp --epsilon 8 --clients 100
      tacit compare runs/a runs/b runs/c
    """
    order, named = _order(asked, modes, seeds)
    folder = out or named
    if order is None:
        _refuse_settings(asked, force=force, workers=workers, seeds=seeds)
        comparison, folder = _finished(asked.words, folder)
    else:
        folder = folder or Path("runs") / f"compare-{datetime.now():%Y%m%d-%H%M%S}"
        comparison = _made(order, folder, workers=workers, force=force, quiet=quiet, as_json=as_json)
    from tacit.report import comparison as report

    paths = report.write(comparison, folder)
    if as_json:
        files = {"folder": str(folder), "files": [str(path) for path in paths]}
        emit_json(comparison.to_dict() | {"failed": len(comparison.failed)} | files)
    elif not quiet:
        from tacit.report.page import terminal

        out_console = console()
        out_console.print(terminal.parts(report.overview(comparison)))
        for path in paths:
            out_console.print(f"written to {path}", markup=False, emoji=False, soft_wrap=True)


def _order(asked: options.Asked, modes: str | None, seeds: int | None) -> tuple[Order | None, Path | None]:
    """Return what is to be run, and where; None where finished runs are given."""
    from tacit.studies.plan import order_of

    words = asked.words
    files = [word for word in words if word.endswith((".yaml", ".yml"))]
    if modes is None and not files and words and not any("=" in word for word in words):
        return None, None
    folders = [word for word in words if "=" not in word and is_folder(Path(word))]
    if folders:
        raise ConfigError(
            f"{folders[0]} is a folder. Give folders of finished runs without --modes and settings, or modes and "
            "settings without folders."
        )
    own = [word for word in words if ":" in word.partition("=")[0]]
    chosen = None if modes is None else tuple(mode.strip().lower() for mode in modes.split(",") if mode.strip())
    settings = asked.but([word for word in words if word not in own]).settings(modes=chosen or ())
    out = settings.pop("out", None)
    return order_of(settings, modes=chosen, seeds=seeds, words=own), None if out is None else Path(out)


def _refuse_settings(asked: options.Asked, *, force: bool, workers: int | None, seeds: int | None) -> None:
    """Refuse flags that only make sense where runs are made."""
    given = [flag.name for flag in asked.flags]
    given += [name for name, value in (("--force", force), ("--workers", workers), ("--seeds", seeds)) if value]
    if given:
        raise ConfigError(
            f"{given[0]} has no effect on finished runs. Leave it out, or choose modes to run with --modes."
        )


def _finished(words: Sequence[str], out: Path | None) -> tuple[Comparison, Path]:
    from tacit.runs.folder import JOURNAL
    from tacit.studies.compare import compare_finished
    from tacit.studies.folder import RECORD

    comparison = compare_finished([Path(word) for word in words])
    if out is None and len(words) == 1 and is_there(Path(words[0]) / RECORD):
        out = Path(words[0])
    out = out or Path("runs") / f"compare-{datetime.now():%Y%m%d-%H%M%S}"
    if is_there(out / JOURNAL):
        raise RunError(f"{out} is the folder of a run. Choose another for the comparison with --out.")
    return comparison, out


def _made(order: Order, folder: Path, *, workers: int | None, force: bool, quiet: bool, as_json: bool) -> Comparison:
    from tacit.studies import compare as comparing
    from tacit.studies.plan import of_modes

    study = of_modes(order)
    again = f"the same command goes on with it, with --out {folder}"
    with watching(quiet=quiet, as_json=as_json, again=again) as watch:
        on_done, on_round = watch.study(study)
        comparison = comparing.compare(
            study, out=folder, workers=workers, force=force, on_done=on_done, on_round=on_round
        )
    if len(comparison.failed) == len(study.runs):
        raise RunError(f"All {len(study.runs)} runs failed, the first because: {comparison.failed[0].error}")
    return comparison
