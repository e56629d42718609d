"""``tacit estimate``: what encryption or masks will cost, before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit import limits
from tacit.cli import options
from tacit.cli.output import JsonFlag, console, emit_json

if TYPE_CHECKING:
    from rich.table import Table

    from tacit.modes.estimate import Estimate
    from tacit.modes.estimate_masks import MaskedEstimate


@options.configured(options.MODE, options.CLIENTS_NOISE, options.EPSILON, options.DELTA, options.ROUNDS)
def estimate(
    asked: options.Asked,
    *,
    parameters: Annotated[str, typer.Option(help="Parameters of the model, such as 21840 or 1e6.")] = "21840",
    clients: Annotated[int, typer.Option(min=1, max=limits.CLIENTS, help="Clients of a round.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show what a round that hides updates costs beyond training, from a second of arithmetic on this machine.

    Examples:
      tacit estimate --mode paillier --parameters 1e6 --clients 50
      tacit estimate --mode masks --parameters 1e6 --clients 100 federate.drop=0.3
      tacit estimate --mode paillier --parameters 66404 paillier.keys=threshold paillier.shares=3/5
    """
    from tacit.errors import ConfigError
    from tacit.modes.estimate import estimate_of
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
    cost = estimate_of(config, parameters=count, clients=clients)
    if as_json:
        emit_json(cost.to_dict())
        return
    console().print(_table(cost))


def _table(cost: Estimate | MaskedEstimate) -> Table:
    from rich.table import Table

    from tacit.modes.estimate_masks import MaskedEstimate

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    for row in _masked(cost) if isinstance(cost, MaskedEstimate) else _encrypted(cost):
        table.add_row(*row)
    return table


def _encrypted(cost: Estimate) -> tuple[tuple[str, str, str], ...]:
    from tacit.report.words import bytes_text, seconds_text

    return (
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


def _masked(cost: MaskedEstimate) -> tuple[tuple[str, str, str], ...]:
    from tacit.report.words import bytes_text, seconds_text

    return (
        (
            "a client masks",
            seconds_text(cost.client_seconds),
            f"with {cost.neighbours} neighbours, {cost.threshold} of which open a mask; {cost.trips} trips",
        ),
        (
            "a client uploads",
            bytes_text(cost.upload_bytes),
            f"{cost.upload_bytes / cost.parameters:.2f} bytes per parameter, sums of {cost.bits} bits",
        ),
        ("a client downloads", bytes_text(cost.download_bytes), "the model, and neighbours' keys and shares"),
        (
            "the server adds",
            seconds_text(cost.server_seconds),
            f"{cost.clients} clients, {cost.dropped} of which drop out (federate.drop), masks taken off",
        ),
        ("all on this machine", seconds_text(cost.round_seconds), "a round beyond training, on one core"),
        ("memory", bytes_text(cost.memory_bytes), "beyond a plain round, all clients in one process"),
    )
