"""``tacit data``: which data sets there are, how to get them, and who would hold what."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit import limits
from tacit.cli import completion
from tacit.cli.output import JsonFlag, console, emit_json

if TYPE_CHECKING:
    from tacit.tasks.data import DataSet

app = typer.Typer(help="List, get and look at data sets.", no_args_is_help=True)

Folder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Look in this folder first (instead of TACIT_DATA's).", metavar="FOLDER"),
]
Name = Annotated[
    str, typer.Argument(help="A name that `tacit data list` shows.", metavar="NAME", autocompletion=completion.of_data)
]
Shown = Annotated[
    str,
    typer.Argument(
        help="A name that `tacit data list` shows, or a CSV file.", metavar="NAME", autocompletion=completion.of_data
    ),
]

_DEFAULT_CLIENTS = 10


@app.command("list")
def list_data(data_dir: Folder = None, json: JsonFlag = False) -> None:
    """Show the data sets, where each was found and where it would come from."""
    from tacit.tasks import catalogue

    rows = catalogue.describe(data_dir)
    if json:
        emit_json({"data_sets": [dataclasses.asdict(row) for row in rows]})
        return
    from tacit.report.page import Cell, Table, terminal

    cells: list[tuple[Cell, ...]] = []
    for row in rows:
        size = f" ({row.download_bytes / 1e6:.1f} MB)" if row.download_bytes else ""
        here = row.found or f"no: tacit data get {row.name}{size}"
        cells.append((row.name, row.examples, str(row.classes), row.holders, here))
    out = console()
    out.print(terminal.table(Table(columns=("name", "train + test", "classes", "holders", "here"), rows=cells)))
    for row in rows:
        out.print(f"\n{row.title}\n  licence: {row.licence}\n  from: {', then '.join(row.sources)}", markup=False)


@app.command("get")
def get_data(name: Name, data_dir: Folder = None, json: JsonFlag = False) -> None:
    """Download a data set into the cache, or check the copy that is here, by SHA-256."""
    from tacit.tasks import catalogue

    fetched = catalogue.fetch(name, folder=data_dir)
    if json:
        emit_json(dataclasses.asdict(fetched))
        return
    out = console()
    out.print(f"{fetched.name}: whole, from {fetched.origin}", markup=False)
    if fetched.writers:
        out.print(f"Its writers: {fetched.writers}", markup=False)
    if fetched.warning:
        console(stderr=True).print(f"Warning: {fetched.warning}", markup=False)


@app.command("show")
def show_data(
    name: Shown,
    *,
    split: Annotated[
        str | None,
        typer.Option(
            help="iid, dirichlet:ALPHA, shards:COUNT, power:EXPONENT or natural; natural where --client is given.",
            metavar="SPLIT",
            show_default="iid",
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Of a CSV file: the column to predict.", metavar="COLUMN")] = None,
    client: Annotated[
        str | None, typer.Option(help="Of a CSV file: the column that says whose a row is.", metavar="COLUMN")
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=limits.CLIENTS,
            help="How many clients; 10 if left out, or every holder for natural.",
            metavar="COUNT",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=limits.SEED, help="The seed of the split, as in `tacit run`.")] = 0,
    data_dir: Folder = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also write a figure here (.png, .svg or .pdf).", metavar="FILE")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show how a split shares out a data set: how many examples of each class every client would hold.

    Examples:
      tacit data show mnist --split dirichlet:0.3 --clients 20
      tacit data show patients.csv --label outcome --client hospital
    """
    import numpy as np

    from tacit.randomness import Randomness
    from tacit.report import holdings as report
    from tacit.report.page import png, terminal
    from tacit.tasks import partition

    # Everything that may be refused is, before the data is loaded.
    rule = partition.parse(split or ("natural" if client else "iid"))
    generator = Randomness.of(seed=seed).stream("split")
    if plot is not None:
        png.check(plot)

    data, classes = _loaded(name, label=label, client=client, folder=data_dir)
    natural = isinstance(rule, partition.Natural)
    if clients is None:
        clients = len(np.unique(data.groups)) if natural and data.groups is not None else _DEFAULT_CLIENTS
    shares = rule.assign(data.train.labels, clients=clients, groups=data.groups, generator=generator)
    holders = (
        [data.group_names[data.groups[rows[0]]] for rows in shares]
        if natural and data.groups is not None and data.group_names
        else None
    )
    held = report.Holdings.of(shares, data.train.labels, classes=data.classes, names=holders, class_names=classes)
    title = f"{data.title}, split {rule} over {clients:,} clients"
    if plot is not None:
        png.write(report.chart(held, title=title), plot)
    if json:
        emit_json(
            {
                "name": data.name,
                "origin": data.origin,
                "licence": data.licence,
                "test_examples": len(data.test),
                "split": str(rule),
                "seed": seed,
                "summary": report.Summary.of(held).to_dict(),
                "classes": list(classes),
                "clients": [
                    {"client": client, "examples": sum(counts), "classes": counts}
                    for client, counts in zip(held.names, held.counts.tolist(), strict=True)
                ],
                "plot": str(plot) if plot is not None else None,
            }
        )
        return
    out = console()
    out.print(f"{data.title} from {data.origin}; split {rule}, seed {seed}", markup=False)
    out.print(terminal.parts(report.parts(held, title=title)))
    if plot is not None:
        out.print(f"Figure: {plot}", markup=False)


def _loaded(
    name: str, *, label: str | None, client: str | None, folder: Path | None
) -> tuple[DataSet, tuple[str, ...]]:
    """Return a data set, and its classes where they have names."""
    from tacit.errors import ConfigError
    from tacit.tasks import catalogue, tables

    if tables.is_file(name):
        data, encoding = tables.load_csv(Path(name), label=label, client=client)
        return data, encoding.classes
    if label or client:
        raise ConfigError(f"--label and --client are for CSV files, and {name} is none. Leave them out.")
    return catalogue.load(name, folder=folder), ()
