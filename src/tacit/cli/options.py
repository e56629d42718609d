"""The flags of a run, and how they become a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tacit.config.run_config import RunConfig

_FEDERATION, _TRAINING, _OUTPUT, _PRIVACY = "Federation", "Local training", "Output", "Privacy"

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB.yaml] [KEY=VALUE]...",
        help="A job file, and settings over it such as federate.rounds=20. `tacit config` prints every key.",
        show_default=False,
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        help="Protection: plain, dp, local-dp, dp-sgd, paillier, signds or nbafl.",
        rich_help_panel=_PRIVACY,
        show_default="plain",
    ),
]
Clip = Annotated[float | None, typer.Option("--C", help="Clip bound C (dp.clip).", rich_help_panel=_PRIVACY)]
ClipOption = Annotated[
    str | None, typer.Option("--clip", help="The same, or adaptive.", rich_help_panel=_PRIVACY, show_default="0.5")
]
Epsilon = Annotated[
    float | None, typer.Option(help="Budget of the run; calibrates the noise.", rich_help_panel=_PRIVACY)
]
Delta = Annotated[float | None, typer.Option(help="Its delta.", rich_help_panel=_PRIVACY, show_default="1e-05")]
MaxEpsilon = Annotated[
    float | None, typer.Option(help="Stop before the round that would exceed this.", rich_help_panel=_PRIVACY)
]
Sigma = Annotated[
    float | None, typer.Option("--sigma", help="Noise multiplier z (dp.noise).", rich_help_panel=_PRIVACY)
]
EncryptedDp = Annotated[
    bool | None,
    typer.Option("--dp/--no-dp", help="With mode paillier: noise from the clients.", rich_help_panel=_PRIVACY),
]
DataName = Annotated[str | None, typer.Option("--data", help="Data set; `tacit data list`.", show_default="mnist")]
DataFolder = Annotated[Path | None, typer.Option("--data-dir", help="Where to look for its files first.")]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="cnn, lenet, mlp, logistic or package.module:Class.", show_default="cnn"),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="iid, dirichlet:ALPHA, shards:K, natural, power:A.",
        rich_help_panel=_FEDERATION,
        show_default="iid",
    ),
]
Clients = Annotated[int | None, typer.Option(help="How many clients.", rich_help_panel=_FEDERATION, show_default="10")]
PerRound = Annotated[
    int | None,
    typer.Option(help="How many take part in a round.", rich_help_panel=_FEDERATION, show_default="all"),
]
Sampling = Annotated[
    str | None, typer.Option(help="all, fixed or poisson.", rich_help_panel=_FEDERATION, show_default=False)
]
Rounds = Annotated[int | None, typer.Option(help="How many rounds.", rich_help_panel=_FEDERATION, show_default="6")]
Drop = Annotated[
    float | None,
    typer.Option(help="Simulated drop-outs: probability a client.", rich_help_panel=_FEDERATION, show_default="0"),
]
LocalEpochs = Annotated[
    int | None,
    typer.Option(help="Passes over its data a client makes.", rich_help_panel=_TRAINING, show_default="1"),
]
BatchSize = Annotated[int | None, typer.Option(help="Examples a step.", rich_help_panel=_TRAINING, show_default="16")]
Rate = Annotated[
    float | None, typer.Option("--lr", help="Learning rate.", rich_help_panel=_TRAINING, show_default="0.05")
]
Gpu = Annotated[int | None, typer.Option(help="Number of the GPU; -1 is the CPU.", show_default="-1")]
Seed = Annotated[
    int | None,
    typer.Option(help="Make a simulation that can be repeated.", show_default="the system's randomness"),
]
Engine = Annotated[str | None, typer.Option(help="What moves the bytes: in-process.", show_default="in-process")]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log", help="Also write rounds to tensorboard or mlflow; both: give it twice.", rich_help_panel=_OUTPUT
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder of the run.", rich_help_panel=_OUTPUT, show_default="runs/...")]


FLAGS = {  # a command's parameter -> the key it sets; of two for one key the later wins
    "mode": "mode",
    "data": "data.name",
    "data_dir": "data.folder",
    "split": "data.split",
    "model": "model.name",
    "clients": "federate.clients",
    "per_round": "federate.per_round",
    "sampling": "federate.sampling",
    "rounds": "federate.rounds",
    "drop": "federate.drop",
    "local_epochs": "train.local_epochs",
    "batch_size": "train.batch_size",
    "dpsgd_batch": "dpsgd.batch_size",
    "dpsgd_clip": "dpsgd.clip",
    "clipping": "dpsgd.clipping",
    "budget_by": "dpsgd.budget_by",
    "iterations": "dpsgd.steps",
    "micro_batch": "dpsgd.micro_batch",
    "lr": "optimizer.lr",
    "clip": "dp.clip",
    "clip_rule": "dp.clip",
    "sigma": "dp.noise",
    "epsilon": "dp.epsilon",
    "delta": "dp.delta",
    "max_epsilon": "dp.max_epsilon",
    "encrypted_dp": "paillier.dp",
    "gpu": "gpu",
    "seed": "seed",
    "engine": "engine",
    "log": "log",
    "out": "out",
}


def settings(words: Sequence[str] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings: job file, then overrides, then flags, the later winning.

    Args:
        words: the positional words.
        given: a command's parameters by name; None where a flag was not given.
    """
    from tacit.config import overrides
    from tacit.modes.catalogue import MODES

    parsed = overrides.parse(words or [])
    for name, key in FLAGS.items():
        if given.get(name) not in (None, []):
            overrides.put(parsed, key, given[name])
    if given.get("batch_size") is not None and (mode := MODES.get(str(parsed.get("mode")).lower())) is not None:
        overrides.put(parsed, mode.batch_size, parsed["train"].pop("batch_size"))  # with DP-SGD it is a mean
    return parsed


def configuration(words: Sequence[str] | None, given: Mapping[str, Any]) -> RunConfig:
    """Build the configuration that words and flags ask for; see :func:`settings`."""
    from tacit.config.run_config import from_mapping

    return from_mapping(settings(words, given))
