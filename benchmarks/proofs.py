"""What proofs of knowledge cost under threshold keys: at a client beside encryption, at a key holder beside opening.

    python benchmarks/proofs.py

Writes benchmarks/results/proofs.json as it goes.
"""

from __future__ import annotations

from pathlib import Path

from tacit_labs.bench.documented.proofs import measure

ROOT = Path(__file__).parents[1]


def main() -> None:
    measure(ROOT / "benchmarks" / "results" / "proofs.json")


if __name__ == "__main__":
    main()
