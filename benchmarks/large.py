"""What models of millions of parameters take: peak memory, seconds by stage, the journal; each case in its own process.

    python benchmarks/large.py [--case "plain 25M x 20"]... [--workers 16]

Results go to benchmarks/results/large.json, case by case; those that were not asked for stay as they are there. The
case of ten million under Paillier takes minutes on two cores, and is run only where it is asked for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.large import CASES, LONG, measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    path = Path(__file__).parent / "results" / "large.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for name in options.case or [name for name in CASES if name not in LONG]:
        known[name] = measure(name, workers=options.workers)
        print(name, json.dumps(known[name]), flush=True)
        keep(known, path)


if __name__ == "__main__":
    main()
