"""``tacit bench``: measure on this machine, beside the peers that are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.output import JsonFlag, console, emit_json

app = typer.Typer(help="Measure speed and size on this machine, beside other libraries.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Smaller samples, in about a minute.")]
PeersPython = Annotated[
    Path | None,
    typer.Option("--peers-python", help="The Python of an environment with the peers (pip install 'tacit\\[bench]')."),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Also write crypto.json and crypto.png to this folder.", metavar="FOLDER")
]


@app.callback()
def _bench() -> None:
    """Keep the command's name even while there is only one."""


@app.command("crypto")
def crypto(
    *, quick: Quick = False, peers_python: PeersPython = None, out: Out = None, as_json: JsonFlag = False
) -> None:
    """Compare encryptions: Tacit's Paillier, phe, lightphe, pypaillier, TenSEAL and Python integers.

    Peers that are not installed are left out, and named.

    Examples:
      tacit bench crypto --quick
      tacit bench crypto --out results --json
    """
    from tacit.bench.crypto import measure
    from tacit.bench.crypto_table import table

    with console(stderr=True).status("keys and tables") as status:
        results = measure(
            quick=quick,
            peers_python=str(peers_python) if peers_python else None,
            progress=lambda what: status.update(what.replace("[", r"\[")),
        )
    if out is not None:
        from tacit.bench.crypto_files import write

        write(results, out)
    if as_json:
        emit_json(results)
        return
    console().print(table(results), markup=False, soft_wrap=True)
