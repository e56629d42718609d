"""``tacit train``: one data holder, no federation, every example protected by DP-SGD."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import options
from tacit.cli.output import JsonFlag, Quiet, emit_json
from tacit.cli.watching import watching

_PRIVACY, _TRAINING = "Privacy", "Training"
_STRETCHES = 10


def train(
    words: options.Words = None,
    data: options.DataName = None,
    model: options.ModelName = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    sigma: options.Sigma = None,
    max_epsilon: options.MaxEpsilon = None,
    dpsgd_clip: Annotated[
        float | None,
        typer.Option("--C", "--clip", help="Largest norm of an example's gradient.", rich_help_panel=_PRIVACY),
    ] = None,
    clipping: Annotated[
        str | None,
        typer.Option(help="flat, per-layer or automatic.", rich_help_panel=_PRIVACY, show_default="flat"),
    ] = None,
    budget_by: Annotated[
        str | None,
        typer.Option(
            help="How epsilon becomes noise: tight, advanced-composition (the DP-SGD lab's two steps) or "
            "advanced-composition-exact (its exact root).",
            rich_help_panel=_PRIVACY,
            show_default="tight",
        ),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="How many steps.", rich_help_panel=_TRAINING, show_default="one epoch")
    ] = None,
    local_epochs: Annotated[
        int | None,
        typer.Option("--epochs", help="Instead: so many passes, on average.", rich_help_panel=_TRAINING),
    ] = None,
    dpsgd_batch: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            help="Mean size of a Poisson batch.",
            rich_help_panel=_TRAINING,
            show_default="512, or all if fewer",
        ),
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(help="Examples at once, to save memory.", rich_help_panel=_TRAINING)
    ] = None,
    lr: options.Rate = None,
    gpu: options.Gpu = None,
    seed: options.Seed = None,
    data_dir: options.DataFolder = None,
    log: options.Log = None,
    out: options.Out = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a run in the folder.", rich_help_panel="Output")
    ] = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Train one data holder's model with DP-SGD: epsilon is that of one example.

    Examples:
      tacit train --epsilon 3 --epochs 15
      tacit train --data breast-cancer --epsilon 1 --delta 1e-3 --iterations 1000 --lr 0.01
      tacit train examples/dp-sgd/mnist-epsilon-3.yaml
    """
    given = locals()
    from tacit.config import overrides
    from tacit.config.run_config import from_mapping
    from tacit.modes.dp_sgd import DP_SGD
    from tacit.runs import run as start

    settings = options.settings(words, given)
    overrides.put(settings, "mode", DP_SGD.name)
    overrides.put(settings, "engine", "alone")
    if "rounds" not in settings.get("federate", {}):
        overrides.put(settings, "federate.rounds", _STRETCHES)
    config = from_mapping(settings)
    if config.out is None:
        config = config.model_copy(update={"out": Path("runs") / f"train-{datetime.now():%Y%m%d-%H%M%S}"})
    with watching(quiet=quiet, as_json=as_json, again=f"go on with: tacit resume {config.out}") as watch:
        result = start.run(config, observer=watch.run(units="steps"), force=force)
    if as_json:
        emit_json(result.to_dict())
