"""Two hundred quick audits of each mode as it is: how often one says that the claim is false, and how close it comes.

    python benchmarks/audit_quiet.py [--runs 200]

Results go to benchmarks/results/audit_quiet.json; what is there already is kept, so that it can be stopped and gone on
with.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.audit_quiet import measure

RESULTS = Path(__file__).parent / "results" / "audit_quiet.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    measure(parser.parse_args().runs, RESULTS)


if __name__ == "__main__":
    main()
