"""What SignDS takes: bytes on the wire, planning, choosing, coding, and the server's sum.

    python benchmarks/signds.py

Results go to benchmarks/results/signds.json. Times are the best of several; one thread, NumPy only.
"""

from __future__ import annotations

import json
from pathlib import Path

from tacit_labs.bench.documented.common import keep
from tacit_labs.bench.documented.signds import measure


def main() -> None:
    found = measure()
    print(json.dumps(found, indent=2))
    keep(found, Path(__file__).parent / "results" / "signds.json")


if __name__ == "__main__":
    main()
