"""``tacit bench``: measure on this machine, beside the peers that are installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tacit import limits
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.cli.watching import watching

if TYPE_CHECKING:
    from tacit_labs.bench.crypto.measured import Results as CryptoResults
    from tacit_labs.bench.files import Results
    from tacit_labs.bench.simulation.measured import Results as SimulationResults

Measured = TypeVar("Measured")

app = typer.Typer(help="Measure speed and size on this machine, beside other libraries.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Smaller samples, in about a minute.")]
PeersPython = Annotated[
    list[Path] | None,
    typer.Option(
        "--peers-python",
        help="The Python of an environment with peers that this one lacks; may be given several times.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Also write JSON, figure and page to this folder.", metavar="FOLDER"),
]
Jobs = Annotated[list[str] | None, typer.Option("--job", help="device or silo; both if left out.", show_default=False)]
Peers = Annotated[
    list[str] | None,
    typer.Option("--peer", help="student, flower, pfl; all that are installed if left out.", show_default=False),
]
Repeats = Annotated[
    int | None,
    typer.Option(
        min=1, max=limits.RETRIES, help="Processes per side, in turn: 3, or 1 with --quick.", show_default=False
    ),
]


@app.command("crypto")
def crypto(
    *, quick: Quick = False, peers_python: PeersPython = None, out: Out = None, as_json: JsonFlag = False
) -> None:
    """Compare encryptions: Tacit's Paillier, phe, lightphe, pypaillier, TenSEAL and Python integers.

    Peers that are not installed (the extra `bench` brings them) are left out, and named.

    Examples:
      tacit bench crypto --quick
      tacit bench crypto --out results --json
    """
    _finish([_crypto(quick, peers_python)], out, as_json=as_json)


@app.command("simulation")
def simulation(
    *,
    quick: Quick = False,
    jobs: Jobs = None,
    peers: Peers = None,
    repeats: Repeats = None,
    peers_python: PeersPython = None,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare simulations: rounds per second of Tacit, a student's loop, Flower's simulation and pfl-research.

    Two jobs on MNIST: cross-device (100 of 1,000 clients per round) and cross-silo (10 clients). Peers that are not
    installed are left out, and named with how to get them.

    Examples:
      tacit bench simulation --quick
      tacit bench simulation --peers-python .bench/pfl/bin/python --out results
    """
    measured = _simulation(quick, peers_python, jobs=jobs, peers=peers, repeats=repeats)
    _finish([measured], out, as_json=as_json)


@app.command("models")
def models(
    *,
    quick: Quick = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", help="resnet8, resnet18, lstm, gru, encoder, decoder, adult, direct.", show_default=False
        ),
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="around, rounds, few, real or steps; all if left out.", show_default=False),
    ] = None,
    gpu: Annotated[int | None, typer.Option(min=0, help="The number of a GPU; the CPU if left out.")] = None,
    text: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="tinyshakespeare: real speakers as clients.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="UCI's adult.data: real trades as clients.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Also write models.json there, as it grows.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare models nobody tuned for: rounds beside a plain loop, DP-SGD steps beside plain ones and Opacus.

    Examples:
      tacit bench models --quick
      tacit bench models --gpu 0 --out results
      tacit bench models --model gru --model decoder --part rounds
    """
    import json

    from tacit.storage import write_atomically
    from tacit_labs.bench.documented.models import run

    def so_far(results: run.Results) -> None:
        if out is not None:
            write_atomically(out / "models.json", (json.dumps(results, indent=2) + "\n").encode(), advice="")

    found = _watched(
        lambda progress: run.measure(
            models=model or (),
            parts=part or (),
            gpu=gpu,
            text=text,
            table=table,
            quick=quick,
            progress=progress,
            so_far=so_far,
        )
    )
    if as_json:
        emit_json(found)
        return
    console().print(run.table(found), markup=False, emoji=False, soft_wrap=True)


@app.command("all")
def everything(
    *,
    quick: Quick = False,
    peers_python: PeersPython = None,
    out: Annotated[Path, typer.Option(help="Folder of the page, the figures and the numbers.")] = Path("runs/bench"),
    as_json: JsonFlag = False,
) -> None:
    """Run all benchmarks and write one page.

    Examples:
      tacit bench all --quick
      tacit bench all --out results
    """
    _finish([_simulation(quick, peers_python), _crypto(quick, peers_python)], out, as_json=as_json)


def _crypto(quick: bool, peers_python: list[Path] | None) -> CryptoResults:
    from tacit_labs.bench.crypto.run import measure
    from tacit_labs.bench.environments import first_with

    named = [str(path) for path in peers_python or ()]
    python = named[0] if len(named) == 1 else first_with(["phe"], named)
    return _watched(lambda progress: measure(quick=quick, peers_python=python, progress=progress))


def _simulation(
    quick: bool,
    peers_python: list[Path] | None,
    *,
    jobs: list[str] | None = None,
    peers: list[str] | None = None,
    repeats: int | None = None,
) -> SimulationResults:
    from tacit_labs.bench.simulation.peers.jobs import JOBS
    from tacit_labs.bench.simulation.run import PEERS, measure

    return _watched(
        lambda progress: measure(
            quick=quick,
            jobs=jobs or list(JOBS),
            peers=peers or list(PEERS),
            repeats=repeats,
            peers_python=[str(path) for path in peers_python or ()],
            progress=progress,
        )
    )


def _watched(work: Callable[[Callable[[str], None]], Measured]) -> Measured:
    """Do the work and show on stderr what is being measured."""
    with watching() as watch:
        report = watch.work("measuring")
        report("keys, tables and data")
        return work(report)


def _finish(measured: Sequence[Results], out: Path | None, *, as_json: bool) -> None:
    """Write the files where a folder was named, and print: one benchmark's results, or all by their names."""
    from tacit_labs.bench.files import text, write

    written = [] if out is None else write(measured, out)
    if as_json:
        plain = {results.name: results.to_dict() for results in measured}
        emit_json(plain if len(measured) > 1 else measured[0].to_dict())
        return
    texts = [text(results) for results in measured]
    texts += ["\n".join(f"written to {path}" for path in written)] if written else []
    console().print("\n\n".join(texts), markup=False, emoji=False, soft_wrap=True)
