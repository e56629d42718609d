"""``tacit site``: the process that holds a site's data, its contract and its ledger for life."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.output import JsonFlag, console, emit_json
from tacit.rounding import epsilon_text

app = typer.Typer(help="A site that obeys only itself: its data, its rules, its ledger for life.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The site's folder.", metavar="FOLDER")]


@app.command("init")
def init(
    *,
    name: Annotated[str, typer.Option(help="The site's name.")],
    data: Annotated[str, typer.Option(help="A CSV file, or a public data set (`tacit data list`) for trials.")],
    out: Annotated[Path, typer.Option(help="The new folder.", metavar="FOLDER")] = Path("site"),
    label: Annotated[str | None, typer.Option(help="The column that is to be predicted.")] = None,
    columns: Annotated[
        Path | None, typer.Option(help="A YAML file with what is publicly known of the columns.", metavar="FILE")
    ] = None,
    drop: Annotated[str, typer.Option(help="Columns that are no features, separated by commas.")] = "",
    number: Annotated[int | None, typer.Option(help="This site's number in a federation.")] = None,
    epsilon: Annotated[float, typer.Option(help="The budget of these data, for life.")] = 8.0,
    delta: Annotated[float, typer.Option(help="At which delta.")] = 1e-5,
    as_json: JsonFlag = False,
) -> None:
    """Make a site: site.yaml with comments and an empty ledger. Nothing is shared yet.

    Examples:
      tacit site init --name st-mary --data heart.csv --label outcome --columns columns.yaml --out site/
    """
    from tacit.site.new import init as new

    section: dict[str, Any] = {
        "label": label,
        "columns": columns and str(columns),
        "drop": drop.split(",") if drop else [],
    }
    values = {"name": name, "number": number, "data": section, "budget": {"epsilon": epsilon, "delta": delta}}
    contract = new(out, data, values)
    if as_json:
        emit_json({"folder": str(out), "contract": contract.model_dump(mode="json")})
        return
    console().print(f"Wrote {out}: site.yaml (read it: it is yours) and an empty ledger.", markup=False)
    console().print(f"try next: tacit site check {out}", style="dim", markup=False)


@app.command("check")
def check(
    folder: Folder,
    job: Annotated[
        Path | None, typer.Option(help="The job file of a run: would it be allowed?", metavar="FILE")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what the site would allow and what it would refuse, in plain words."""
    from tacit.site.check import check as checked
    from tacit.site.check import of_run

    found = checked(folder)
    proposal = None if job is None else of_run(_job(job), found)
    if as_json:
        emit_json(
            {
                "site": found.contract.name,
                "spent": _plain(found.spent),
                "releases": found.releases,
                "modes": {one.mode: {"allowed": one.allowed, "why": one.words} for one in found.verdicts},
                "remarks": list(found.remarks),
            }
            | ({} if proposal is None else {"job": {"allowed": proposal.allowed, "why": proposal.words}})
        )
    else:
        out = console()
        rules = found.contract.rules
        out.print(f"{found.contract.name}: {found.contract.data.name}, {found.releases} releases so far.", markup=False)
        out.print(found.promise, markup=False)
        for one in found.verdicts:
            out.print(f"  {one.mode:10} {one.words}", markup=False)
        out.print(
            f"Rounds: at most {rules.rounds} of a run and {rules.rounds_per_day} in 24 hours, sums of at least "
            f"{rules.cohort} clients, noise of at least {rules.noise:g}. Models: {', '.join(rules.models)}. Told "
            f"beside replies: {', '.join(rules.tell) or 'nothing'}.",
            markup=False,
        )
        for remark in found.remarks:
            out.print(f"note: {remark}", markup=False)
        if proposal is not None:
            out.print(f"{job} {proposal.words}", markup=False)
    if proposal is not None and not proposal.allowed:
        raise typer.Exit(1)


@app.command("serve")
def serve(
    folders: Annotated[
        list[Path], typer.Argument(help="The site's folder; several, for trials, get a process each.", metavar="FOLDER")
    ],
) -> None:
    """Answer frames at the site's socket until SIGTERM; the one process that ever holds the data."""
    import logging
    import os

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    from tacit.site.serving import serve as process

    process(*folders, ready=lambda folder: _say(f"{folder}: process {os.getpid()} is answering"))


@app.command("ledger")
def ledger(folder: Folder, as_json: JsonFlag = False) -> None:
    """List every release ever made about the site's data, by run, with the composed epsilon."""
    from tacit.site.contract import LEDGER, read
    from tacit.site.ledger import Ledger, plain, totals, views

    contract = read(folder)
    with Ledger.open(folder.absolute() / LEDGER, contract) as opened:
        rows, spent = opened.rows(), opened.spent(contract)
    by_run, by_trust = totals(rows, contract), views(rows, contract)
    if as_json:
        emit_json(
            {
                "site": contract.name,
                "data": contract.data.model_dump(mode="json"),
                "budget": contract.budget.model_dump(mode="json"),
                "epsilon": _plain(spent),
                "against": {trust: _plain(value) for trust, value in by_trust.items()},
                "runs": {run: _plain(value) for run, value in by_run.items()},
                "releases": [plain(row) for row in rows],
            }
        )
        return
    from datetime import UTC, datetime

    out = console()
    for run, value in by_run.items():
        own = [row for row in rows if row.run == run]
        when = " to ".join(f"{datetime.fromtimestamp(row.at, UTC):%Y-%m-%d %H:%M}" for row in (own[0], own[-1]))
        out.print(
            f"run {run}: {own[0].mode}, {len(own)} replies, rounds {own[0].round} to {own[-1].round}, {when} UTC, "
            f"epsilon {epsilon_text(value, digits=4)} by itself",
            markup=False,
        )
    budget = contract.budget
    whom = "a row" if budget.unit == "example" else "the site"
    out.print(f"All {len(rows)} releases together, at delta {budget.delta:g}, for {whom}:", markup=False)
    from tacit.site.costs import AGAINST

    for trust, value in by_trust.items():
        mark = "  <- the budget" if trust == budget.trust else ""
        out.print(f"  epsilon {epsilon_text(value, digits=4):>9} against {AGAINST[trust]}{mark}", markup=False)
    limit = "no limit" if budget.epsilon is None else f"{budget.epsilon:g}"
    out.print(f"The budget for life is {limit}.", markup=False)


def _job(path: Path) -> Any:
    from tacit import foreign
    from tacit.config.run_config import from_mapping
    from tacit.errors import ConfigError

    try:
        return from_mapping(foreign.yaml_value(foreign.read_plain(path, largest=foreign.LARGEST)))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror or error}.") from error


def _plain(value: float) -> float | str:
    from tacit.accounting.events import to_json

    told = to_json(value)
    assert told is not None
    return told


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
