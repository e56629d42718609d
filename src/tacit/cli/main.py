"""The command ``tacit``: collects the commands and turns errors into sentences."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import tacit
from tacit.cli import (
    addition,
    attack,
    audit,
    calibrate,
    combine,
    compare,
    config,
    data,
    decrypt,
    deploy,
    doctor,
    encrypt,
    epsilon,
    estimate,
    holder,
    keys,
    ledger,
    report,
    resume,
    run,
    signds,
    site,
    sweep,
    watch,
)
from tacit.cli import train as training
from tacit.cli.labs import WithLabs
from tacit.cli.options import Configured
from tacit.errors import TacitError

app = typer.Typer(
    name="tacit",
    cls=WithLabs,
    help="Privacy-preserving federated learning: one command, one switch between protections.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=Configured)(run.run)
app.command("train", cls=Configured)(training.train)
app.command("resume")(resume.resume)
app.command("config", cls=Configured)(config.config)
app.add_typer(doctor.app, name="doctor")
app.command("epsilon")(epsilon.epsilon)
app.command("calibrate")(calibrate.calibrate)
app.command("estimate", cls=Configured)(estimate.estimate)
app.command("ledger")(ledger.ledger)
app.command("audit")(audit.audit)
app.command("attack")(attack.attack)
app.command("report")(report.report)
app.command("watch")(watch.watch)
app.command("sweep", cls=Configured)(sweep.sweep)
app.command("compare", cls=Configured)(compare.compare)
app.add_typer(deploy.app, name="deploy")
app.add_typer(site.app, name="site")
app.add_typer(data.app, name="data")
app.add_typer(keys.app, name="keys")
app.add_typer(holder.app, name="holder")
app.add_typer(signds.app, name="signds")
app.command("encrypt")(encrypt.encrypt)
app.command("sum")(addition.sum_vectors)
app.command("decrypt")(decrypt.decrypt)
app.command("combine")(combine.combine)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"tacit {tacit.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line; a user's mistake gets a sentence on stderr and exit status 1, never a traceback."""
    try:
        try:
            app(prog_name="tacit")
        finally:
            sys.stdout.flush()  # what can't be printed shows here, and not when the interpreter ends
    except TacitError as error:
        _complain(str(error))
        sys.exit(1)
    except ModuleNotFoundError as error:  # an installation with less than all that training takes
        package = (error.name or "tacit").partition(".")[0]
        if package.startswith("tacit"):
            raise
        _complain(
            f"This command needs the package {package}, which is not installed. Get all of them: pip install tacit."
        )
        sys.exit(1)
    except KeyboardInterrupt:
        _complain("Stopped.")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has left, as in `tacit config | head`
        _print_nothing_more()
        sys.exit(1)
    except OSError as error:  # what no part of ours has put in its own words, as where stdout is a full disk
        if error.filename is None:
            _print_nothing_more()
        _complain(_refusal(error))
        sys.exit(1)


def _print_nothing_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refusal(error: OSError) -> str:
    """Return what the operating system would not do."""
    from tacit.storage import cannot_read

    if error.filename is None:
        return f"The system refused: {error.strerror or error}. Is there space left, and may you write there?"
    return str(cannot_read(os.fsdecode(error.filename), error, "Is it the right file, and may you use it?"))


def _complain(text: str) -> None:
    from rich.text import Text

    from tacit.cli.output import console

    shown = text.encode("utf-8", "backslashreplace").decode()  # bytes of an argument that are no text
    console(stderr=True).print(Text("error: ", style="bold red") + Text(shown), soft_wrap=True)
