"""Time the native core against gmpy2, operation by operation, in one run.

python benchmarks/crypto_core.py            # a few minutes; writes benchmarks/results/crypto_core.json
python benchmarks/crypto_core.py --quick    # 4096 bits only, writes nothing
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit.errors import TacitError
from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.crypto_core import measure, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4096 bits only; writes nothing")
    options = parser.parse_args()
    try:
        found = measure(quick=options.quick)
    except TacitError as error:
        parser.exit(1, f"{error}\n")
    print(table(found["results"]))
    if not options.quick:
        keep(found, Path(__file__).parent / "results" / "crypto_core.json")


if __name__ == "__main__":
    main()
