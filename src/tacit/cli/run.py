"""``tacit run``: train a federated model in one command."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tacit.cli import options
from tacit.cli.output import ForceRun, JsonFlag, Quiet, emit_json
from tacit.cli.watch import Live, Port, served, told, until_interrupted
from tacit.cli.watching import watching


@options.configured(*options.RUN)
def run(
    asked: options.Asked,
    *,
    live: Live = False,
    port: Port = None,
    force: ForceRun = False,
    quiet: Quiet = False,
    as_json: JsonFlag = False,
) -> None:
    """Train a federated model.

    Without anything else: the CNN on MNIST over 10 clients, in the clear.

    Examples:
      tacit run --clients 100 --per-round 20 --rounds 30 --split dirichlet:0.3
      tacit run job.yaml federate.rounds=20 optimizer.grad_clip=1.0
      tacit run --mode dp --epsilon 8 --clients 1000 --per-round 200 --rounds 60
      tacit run --live
      tacit run --mode paillier paillier.keys=threshold paillier.shares=3/5
    """
    config = asked.config()
    if config.out is None:
        config = config.model_copy(update={"out": Path("runs") / f"{config.mode}-{datetime.now():%Y%m%d-%H%M%S}"})
    assert config.out is not None
    server = served(config.out, live=live, port=port)
    with watching(
        quiet=quiet, as_json=as_json, again=f"go on with: tacit resume {config.out}", folder=config.out
    ) as watch:
        observer = watch.run()
        from tacit.runs import run as start

        result = start.run(config, observer=observer, force=force)
    if as_json:
        emit_json(result.to_dict())
    if server is not None:
        told(server, "The page stays at")
        until_interrupted()
        server.close()
