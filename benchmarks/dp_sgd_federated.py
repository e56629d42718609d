"""Mode dp-sgd with nothing set but a budget, on MNIST: what the defaults learn at epsilon 1, 3 and 8.

    python benchmarks/dp_sgd_federated.py [--gpu 0] [--seeds 3] [--epsilon 3] [--split iid] [--model cnn]
                                          [--data-dir DIR]

Results go to benchmarks/results/dp_sgd_federated.json. Only `--epsilon`, `--split` and `--model` can be given several
times; every combination is run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.dp_sgd_federated import measure

RESULTS = Path(__file__).parent / "results" / "dp_sgd_federated.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=-1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, action="append")
    parser.add_argument("--split", action="append")
    parser.add_argument("--model", action="append")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    measure(
        epsilons=options.epsilon or [1.0, 3.0, 8.0],
        splits=options.split or ["iid"],
        models=options.model or ["cnn"],
        seeds=options.seeds,
        gpu=options.gpu,
        folder=options.data_dir,
        results=options.results,
    )


if __name__ == "__main__":
    main()
