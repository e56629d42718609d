"""``tacit deploy``: Flower apps, certificates, and a whole federation on this machine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit import limits
from tacit.cli import options
from tacit.cli.output import ForceRun, JsonFlag, Quiet, console, emit_json
from tacit.cli.watching import watching

if TYPE_CHECKING:
    from tacit.config.run_config import RunConfig
    from tacit.flower.deploy.local import LocalFederation

app = typer.Typer(help="Run over a network, on Flower.", no_args_is_help=True)

_FLAGS = options.without(options.RUN, "federate.drop", "engine", "log")
_REFUSED = {
    "federate.drop": "it simulates drop-outs, and a deployment's clients are real. Use `tacit run`.",
    "engine": "a deployment's engine is Flower.",
}


@app.command("new", cls=options.Configured)
@options.configured(*options.without(_FLAGS, "gpu", "data.folder", "out"), refused=_REFUSED)
def new(
    name: Annotated[Path, typer.Argument(help="The new folder; its name is the app's.", metavar="NAME")],
    asked: options.Asked,
    *,
    as_json: JsonFlag = False,
) -> None:
    """Write a small Flower app whose settings are Tacit's.

    Examples:
      tacit deploy new my-federation && cd my-federation && flwr run . --stream
      tacit deploy new hospitals --mode paillier paillier.keys=threshold --clients 5
    """
    config, notes = _suited(asked)
    from tacit.flower.deploy import app as apps
    from tacit.flower.deploy import nodes

    if config.out is None:
        config = config.model_copy(update={"out": Path("runs") / name.name})
    resolved = nodes.shared(config)
    folder = apps.write_app(name, resolved)
    if as_json:
        emit_json({"folder": str(folder), "files": sorted(apps.files(resolved, folder.name))})
        return
    out = console()
    for note in notes:
        out.print(note, soft_wrap=True, markup=False)
    out.print(f"Wrote {folder}: {', '.join(apps.files(resolved, folder.name))}", soft_wrap=True, markup=False)
    out.print(f"try next: cd {folder} && flwr run . --stream", soft_wrap=True, markup=False, style="dim")


@app.command("certificates")
def certificates(
    hosts: Annotated[list[str], typer.Argument(help="Names or addresses of the SuperLink.", metavar="HOST...")],
    out: Annotated[Path, typer.Option(help="Folder of the new files.", metavar="FOLDER")] = Path("certificates"),
    days: Annotated[int, typer.Option(min=1, max=limits.DAYS, help="How long they are valid.")] = 365,
    as_json: JsonFlag = False,
) -> None:
    """Make TLS certificates for a SuperLink: authority.pem for everybody, superlink.pem and superlink.key for it.

    The authority's key is not kept. Nothing is ever overwritten.
    """
    from tacit.flower.deploy.certificates import write_certificates

    made = write_certificates(out, hosts, days=days)
    if as_json:
        emit_json({"files": [str(made.authority), str(made.certificate), str(made.key)], "days": days})
        return
    for path, use in (
        (made.authority, "for everybody who connects"),
        (made.certificate, "for the SuperLink"),
        (made.key, "for the SuperLink alone; readable by you alone"),
    ):
        console().print(f"{path}  {use}", soft_wrap=True, markup=False)


@app.command("local", cls=options.Configured)
@options.configured(*_FLAGS, refused=_REFUSED)
def local(
    asked: options.Asked,
    *,
    port: Annotated[
        int,
        typer.Option(help="Port of the SuperLink; 0 is a free one.", rich_help_panel="Federation", min=0, max=65535),
    ] = 0,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Leave it up after the run, until Ctrl-C. Meanwhile every user of this machine can send it runs.",
            rich_help_panel="Federation",
        ),
    ] = False,
    force: ForceRun = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Start a SuperLink and a SuperNode for each client and key holder on this machine, run, and stop them.

    As over a network: TLS, node authentication, pinned keys, a process per message. Slower than `tacit run` by far. A
    deployment that stopped goes on with the same command and its --out.

    Examples:
      tacit deploy local --clients 3 --mode dp
      tacit deploy local --clients 3 --mode paillier paillier.keys=threshold
    """
    config, notes = _suited(asked)
    if config.out is None:
        config = config.model_copy(update={"out": Path("runs") / f"{config.mode}-{datetime.now():%Y%m%d-%H%M%S}"})
    for note in () if quiet else notes:
        console(stderr=True).print(note, soft_wrap=True, markup=False)
    from tacit.flower.deploy.local import deploy

    again = f"go on with: the same command and --out {config.out}"
    meanwhile = _stay if keep else lambda _: None
    with watching(quiet=quiet, as_json=as_json, again=again) as watch:
        result = deploy(config, observer=watch.run(), port=port, force=force, meanwhile=meanwhile)
    if as_json:
        emit_json(result.to_dict())


def _suited(asked: options.Asked) -> tuple[RunConfig, tuple[str, ...]]:
    """Return the configuration with what suits its mode, and say so; each client is a process, so they are not many."""
    from tacit.modes.settings import suited

    return suited(asked.config(), but=("federate.clients",))


def _stay(up: LocalFederation) -> None:
    """Wait for Ctrl-C."""
    import time

    console(stderr=True).print(
        f"The federation stays up until Ctrl-C. Send it another run: FLWR_HOME={up.home} flwr run APP --stream. So can "
        f"everyone who reaches {up.address}, any user of this machine: a run is code, which the nodes execute as you. "
        "Keep it up only where you trust all of them.",
        soft_wrap=True,
        markup=False,
    )
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        return
