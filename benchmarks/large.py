"""What models of millions of parameters take: peak memory, seconds by stage, the journal; each case in its own process.

    python benchmarks/large.py [--case "plain 25M x 20"]... [--workers 16] [--page-only]

Results go to benchmarks/results/large.json, case by case, and into the table of docs/benchmarks.md; those that were not
asked for stay as they are there. Ten million parameters under Paillier, and large models on Flower, take minutes on two
cores, and are run only where they are asked for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit_labs.bench.documented.common import keep, rewrite
from tacit_labs.bench.documented.large import CASES, LONG, filled, measure

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--page-only", action="store_true", help="measure nothing; fill the table of the documentation")
    options = parser.parse_args()
    path = ROOT / "benchmarks" / "results" / "large.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    asked = options.case or [name for name in CASES if name not in LONG]
    for name in [] if options.page_only else asked:
        known[name] = measure(name, workers=options.workers)
        print(name, json.dumps(known[name]), flush=True)
        keep(known, path)
    rewrite(ROOT / "docs" / "benchmarks.md", lambda text: filled(text, known))


if __name__ == "__main__":
    main()
