"""What it costs that a site's data live in a process of their own: a frame's way over the socket, and a MNIST round.

    python benchmarks/site_process.py

Writes benchmarks/results/site.json as it goes, and puts the table into docs/site.md.
"""

from __future__ import annotations

from pathlib import Path

from tacit_labs.bench.documented.site_process import measure

ROOT = Path(__file__).parents[1]


def main() -> None:
    measure(results=ROOT / "benchmarks" / "results" / "site.json", page=ROOT / "docs" / "site.md")


if __name__ == "__main__":
    main()
