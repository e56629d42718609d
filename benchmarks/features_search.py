"""Settings for private learning on scattering features, searched on a part of the training data.

    python benchmarks/features_search.py [--seconds 60] [--targets clients-iid-8 examples-3] [--device cuda]

Results go to benchmarks/results/features_search.json, and from there by hand into examples/dp-features.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit_labs.bench.documented.features_search import TARGETS, search_all

RESULTS = Path(__file__).parent / "results" / "features_search.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of search for each target")
    parser.add_argument("--targets", nargs="*", choices=sorted(TARGETS), default=list(TARGETS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    search_all(options.targets, seconds=options.seconds, device=options.device, results=options.results)


if __name__ == "__main__":
    main()
