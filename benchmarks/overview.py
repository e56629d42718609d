"""The headline numbers and the tables of all sources in the documentation, from the files of full reproductions.

    python benchmarks/overview.py
    python benchmarks/overview.py --results reproductions --page docs/reproductions.md

It rewrites what stands between the marks of the page, headlines and tables; a test compares it with the files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit.errors import TacitError
from tacit_labs.harness.overview import rewrite


def main() -> None:
    root = Path(__file__).parents[1]
    parser = argparse.ArgumentParser(description="Write the headline numbers of all sources into the documentation.")
    parser.add_argument("--results", type=Path, default=root / "benchmarks" / "results" / "reproductions")
    parser.add_argument("--page", type=Path, default=root / "docs" / "reproductions.md")
    options = parser.parse_args()
    try:
        rewrite(options.page, options.results)
    except TacitError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
