"""The server: averages what the clients have learnt."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import tacit.flower
from quickstart.task import build

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and print how well the last model does."""
    strategy = tacit.flower.Private(FedAvg(), config=context.run_config)
    rounds = int(context.run_config["num-server-rounds"])
    result = strategy.start(grid, ArrayRecord(build().state_dict()), num_rounds=rounds)
    print(f"accuracy {result.evaluate_metrics_clientapp[rounds]['accuracy']:.1%}")
