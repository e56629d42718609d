"""``tacit train``: one data holder, no federation, every example protected by DP-SGD."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tacit.cli import options
from tacit.cli.output import ForceRun, JsonFlag, Quiet, emit_json
from tacit.cli.watching import watching

_STRETCHES = 10
_ALONE = "there is one data holder and no federation. `tacit run --mode dp-sgd` trains with several."


@options.configured(
    *options.TRAIN,
    refused={
        "mode": "`tacit train` protects examples by DP-SGD. For other modes: `tacit run --mode ...`.",
        "engine": "`tacit train` needs none, as nothing travels.",
        "data.split": _ALONE,
        "server.": _ALONE,
        **{f"federate.{name}": _ALONE for name in ("clients", "per_round", "share", "sampling", "minimum_clients")},
        **{f"federate.{name}": _ALONE for name in ("drop", "retries", "separation", "weighting")},
        "train.batch_size": "DP-SGD draws Poisson batches; their mean size is dpsgd.batch_size (--batch-size).",
        "paillier.": _ALONE,
    },
)
def train(
    asked: options.Asked,
    *,
    force: ForceRun = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Train one data holder's model with DP-SGD: epsilon is that of one example.

    Examples:
      tacit train --epsilon 3 --epochs 15
      tacit train --data breast-cancer --epsilon 1 --delta 1e-3 --iterations 1000 --lr 0.01
      tacit train examples/dp-sgd/mnist-epsilon-3.yaml
    """
    from tacit.config import overrides
    from tacit.config.run_config import from_mapping
    from tacit.modes.dp_sgd import DP_SGD
    from tacit.runs import run as start

    settings = asked.settings()
    overrides.put(settings, "mode", DP_SGD.name)
    overrides.put(settings, "single_holder", True)
    if "rounds" not in settings.get("federate", {}):
        overrides.put(settings, "federate.rounds", _STRETCHES)
    config = from_mapping(settings)
    if config.out is None:
        config = config.model_copy(update={"out": Path("runs") / f"train-{datetime.now():%Y%m%d-%H%M%S}"})
    with watching(
        quiet=quiet, as_json=as_json, again=f"go on with: tacit resume {config.out}", folder=config.out
    ) as watch:
        result = start.run(config, observer=watch.run(units="steps"), force=force)
    if as_json:
        emit_json(result.to_dict())
