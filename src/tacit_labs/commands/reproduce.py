"""``tacit reproduce``: the source experiments again, each with a page, its data and its tables."""

from __future__ import annotations

import shutil
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit import limits
from tacit.cli import options
from tacit.cli.output import JsonFlag, Quiet, console, emit_json
from tacit.cli.watching import watching
from tacit.errors import ConfigError, TacitError

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from tacit_labs.harness.record import Outcome

_LINES = 40  # of a table in the terminal

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME...]", help="One or several of those that --list shows, or all.", show_default=False),
]


@options.configured(options.GPU, options.DATA_FOLDER, words=None)
def reproduce(
    names: Names = None,
    *,
    asked: options.Asked,
    listed: Annotated[
        bool, typer.Option("--list", help="Show what there is: source, experiments and time; run nothing.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller settings, each within a minute or so.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the pages.")] = Path("reproductions"),
    seed: Annotated[int, typer.Option(min=0, max=limits.SEED, help="Same seed, same results (but for times).")] = 1,
    opened: Annotated[bool, typer.Option("--open", help="Open the pages in a browser.")] = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Run the source experiments again: what each had, what we get, and why they differ.

    Each writes NAME.html, NAME.json and its tables as CSV into --out, and overview.html beside them has the headline
    numbers of all that lie there. One that fails does not stop the others.

    Examples:
      tacit reproduce --list
      tacit reproduce report-000 --quick --open
      tacit reproduce all --out reproductions
    """
    from tacit_labs.harness import catalogue, files, overview
    from tacit_labs.harness.experiment import Settings
    from tacit_labs.harness.record import perform

    if listed:
        _list(as_json=as_json)
        return
    if not names:
        raise ConfigError("Name what to reproduce, or `all`; `tacit reproduce --list` shows what there is.")
    wanted = catalogue.chosen(names)
    config = asked.config()
    settings = Settings(quick=quick, out=out, seed=seed, gpu=config.gpu, data_dir=config.data.folder)
    done: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for name in wanted:
        try:
            with watching(quiet=quiet) as watch:
                outcome = perform(catalogue.load(name), settings, watch.work(name))
            paths = files.write(outcome, out)
            shutil.rmtree(settings.work(name), ignore_errors=True)  # it is there for runs that were stopped
        except Exception as error:
            if len(wanted) == 1:
                raise
            failed[name] = _reason(error)
            continue
        done.append(outcome.to_dict() | {"files": [str(path) for path in paths]})
        if not (quiet or as_json):
            _show(outcome, paths)
        if opened:
            import webbrowser

            webbrowser.open(paths[0].resolve().as_uri())
    summary = overview.write(out, advice=files.ADVICE)
    if as_json:
        emit_json({"done": done, "failed": failed, "overview": None if summary is None else str(summary)})
    elif summary is not None and not quiet:
        console().print(f"all of {out} at a glance: {summary}", markup=False, emoji=False, soft_wrap=True)
    if failed:
        _complain(failed, len(wanted))
        raise typer.Exit(1)


def _list(*, as_json: bool) -> None:
    """Say of each experiment which document it is from, what is in it and how long it takes."""
    from tacit.report.page import Table, terminal
    from tacit_labs.harness import catalogue

    found = [catalogue.load(name) for name in catalogue.MODULES]
    if as_json:
        keys = ("name", "title", "document", "parts", "quick", "full")
        emit_json({"experiments": [{key: getattr(one, key) for key in keys} for one in found]})
        return
    rows = [(one.name, one.document, "; ".join(one.parts) or one.title, one.quick, one.full) for one in found]
    shown = Table(columns=("name", "source document", "experiments", "--quick", "in full"), rows=rows, align="lllll")
    console().print(terminal.table(shown))


def _reason(error: Exception) -> str:
    """Return why an experiment failed; a mistake of ours leaves its traceback on stderr too."""
    if isinstance(error, TacitError):
        return str(error)
    traceback.print_exc()
    return f"{type(error).__name__}: {error}"


def _show(outcome: Outcome, paths: list[Path]) -> None:
    from rich.text import Text

    from tacit.report.page import terminal
    from tacit_labs.harness import page

    out = console()
    out.print(Text(f"\n{outcome.experiment.title}", style="bold"), soft_wrap=True)
    out.print(outcome.reproduction.settings, markup=False, emoji=False, soft_wrap=True)
    if outcome.record.quick:
        out.print(terminal.marked(page.quick_words(outcome), "yellow"), soft_wrap=True)
    out.print(_findings(outcome))
    for name, table in outcome.reproduction.tables.items():
        if not table.caption:
            out.print(Text(name, style="dim"))
        out.print(terminal.table(table, most=_LINES))
        out.print()
    for path in paths:
        out.print(f"written to {path}", markup=False, emoji=False, soft_wrap=True)


def _findings(outcome: Outcome) -> RichTable:
    """Return the findings one below the other: four columns of sentences would be too narrow to read."""
    from rich.table import Table as RichTable

    from tacit.report.page.terminal import marked

    shown = RichTable.grid(padding=(0, 1))
    shown.add_column(style="dim", no_wrap=True)
    shown.add_column()
    for found in outcome.reproduction.findings:
        shown.add_row("", "")
        shown.add_row("", marked(found.what, "bold"))
        for name, text in (("original", found.original), ("ours", found.ours), ("why", found.why)):
            shown.add_row(name, marked(text))
    shown.add_row("", "")
    return shown


def _complain(failed: dict[str, str], wanted: int) -> None:
    from rich.text import Text

    errors = console(stderr=True)
    for name, reason in failed.items():
        errors.print(Text("failed: ", style="bold red") + Text(f"{name}: {reason}"), soft_wrap=True)
    errors.print(f"{len(failed)} of {wanted} experiments failed; the others are written.", soft_wrap=True)
