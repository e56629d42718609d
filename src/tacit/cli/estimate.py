"""``tacit estimate``: what encryption will cost, before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit import limits
from tacit.cli import options
from tacit.cli.output import JsonFlag, console, emit_json

if TYPE_CHECKING:
    from rich.table import Table

    from tacit.modes.estimate import Estimate


@options.configured(options.MODE, options.CLIENTS_NOISE, options.EPSILON, options.DELTA, options.ROUNDS)
def estimate(
    asked: options.Asked,
    *,
    parameters: Annotated[str, typer.Option(help="Parameters of the model, such as 21840 or 1e6.")] = "21840",
    clients: Annotated[int, typer.Option(min=1, max=limits.CLIENTS, help="Clients of a round.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show what a round of an encrypted run costs beyond training, from a second of arithmetic on this machine.

    Examples:
      tacit estimate --mode paillier --parameters 1e6 --clients 50
      tacit estimate --mode paillier --parameters 66404 paillier.keys=threshold paillier.shares=3/5
    """
    from tacit.errors import ConfigError
    from tacit.modes.estimate import estimate as measure
    from tacit.modes.paillier import PAILLIER

    config = asked.config()
    try:
        count = int(float(parameters))
    except (ValueError, OverflowError):
        raise ConfigError(
            f"Expected --parameters to be a number such as 21840 or 1e6, got {parameters[:40]!r}."
        ) from None
    if not 1 <= count <= limits.PARAMETERS:
        raise ConfigError(f"Expected --parameters from 1 to {limits.PARAMETERS:,}, got {parameters[:40]}.")
    if "mode" not in config.model_fields_set:
        config = config.model_copy(update={"mode": PAILLIER.name})
    cost = measure(config, parameters=count, clients=clients)
    if as_json:
        emit_json(cost.to_dict())
        return
    console().print(_table(cost))


def _table(cost: Estimate) -> Table:
    from rich.table import Table

    from tacit.report.words import bytes_text, seconds_text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    rows = (
        (
            "a client encrypts",
            seconds_text(cost.client_seconds),
            f"{cost.ciphertexts:,} ciphertexts of {cost.slots} slots",
        ),
        (
            "a client uploads",
            bytes_text(cost.upload_bytes),
            f"{cost.upload_bytes / cost.parameters:.2f} bytes per parameter",
        ),
        ("a client downloads", bytes_text(cost.download_bytes), "the model, the key and the layout"),
        ("the server adds", seconds_text(cost.aggregate_seconds), f"{cost.clients} clients, checks included"),
        ("key holders open", seconds_text(cost.recover_seconds), f"{bytes_text(cost.holder_bytes)} to and from them"),
        ("all on this machine", seconds_text(cost.round_seconds), f"a round beyond training, by {cost.backend}"),
        ("memory", bytes_text(cost.memory_bytes), "beyond a plain round, all clients in one process"),
    )
    for row in rows:
        table.add_row(*row)
    return table
