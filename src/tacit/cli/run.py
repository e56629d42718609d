"""``tacit run``: train a federated model in one command."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import options
from tacit.cli.output import JsonFlag, Quiet, emit_json
from tacit.cli.watching import watching


def run(
    words: options.Words = None,
    mode: options.Mode = None,
    data: options.DataName = None,
    model: options.ModelName = None,
    split: options.Split = None,
    clients: options.Clients = None,
    per_round: options.PerRound = None,
    sampling: options.Sampling = None,
    rounds: options.Rounds = None,
    drop: options.Drop = None,
    local_epochs: options.LocalEpochs = None,
    batch_size: options.BatchSize = None,
    lr: options.Rate = None,
    clip: options.Clip = None,
    clip_rule: options.ClipOption = None,
    sigma: options.Sigma = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    max_epsilon: options.MaxEpsilon = None,
    encrypted_dp: options.EncryptedDp = None,
    gpu: options.Gpu = None,
    seed: options.Seed = None,
    engine: options.Engine = None,
    data_dir: options.DataFolder = None,
    log: options.Log = None,
    out: options.Out = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a run in the folder.", rich_help_panel="Output")
    ] = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a federated model.

    Without anything else: the CNN on MNIST over 10 clients, in the clear.

    Examples:
      tacit run --clients 100 --per-round 20 --rounds 30 --split dirichlet:0.3
      tacit run job.yaml federate.rounds=20 optimizer.grad_clip=1.0
      tacit run --mode dp --epsilon 8 --clients 1000 --per-round 200 --rounds 60
      tacit run --mode paillier paillier.keys=threshold paillier.shares=3/5
    """
    given = locals()
    config = options.configuration(words, given)
    if config.out is None:
        config = config.model_copy(update={"out": Path("runs") / f"{config.mode}-{datetime.now():%Y%m%d-%H%M%S}"})
    from tacit.runs import run as start

    with watching(quiet=quiet, as_json=as_json, again=f"go on with: tacit resume {config.out}") as watch:
        result = start.run(config, observer=watch.run(), force=force)
    if as_json:
        emit_json(result.to_dict())
