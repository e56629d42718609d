"""Two hundred quick audits of each mode as it is: how often one says that the claim is false, and how close it comes.

    python benchmarks/audit_quiet.py [--runs 200]

writes ``benchmarks/results/audit_quiet.json``; what is there already is kept, so that it can be stopped and gone on
with. Settings are small ones of each mode, seeds are 1, 2, 3, ...
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from tacit.audit import cases
from tacit.audit.audit import Effort, audit
from tacit.randomness import Randomness

RESULTS = Path(__file__).parent / "results" / "audit_quiet.json"
EFFORT = Effort(explore=20, count=100)
MODES: dict[str, dict[str, Any]] = {
    "dp": {"dp": {"noise": 1.0}, "federate": {"clients": 5}},
    "dp, half of the clients": {"dp": {"noise": 1.0}, "federate": {"clients": 10, "per_round": 5}},
    "local-dp": {"dp": {"noise": 4.0}},
    "nbafl": {"nbafl": {"epsilon": 1.0, "smallest": 1}},
    "signds": {"signds": {"sign_eps": 2.0, "rr_eps": 1.0}},
    "dp-sgd": {"dpsgd": {"noise": 1.0, "batch_size": 1000}},
    "paillier": {"dp": {"noise": 2.0}, "paillier": {}},
}


def main() -> None:
    """Audit, and write after each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())["modes"] if RESULTS.is_file() else {}
    for name, sections in MODES.items():
        own = found.setdefault(name, {"bounds": [], "refuted": 0})
        for seed in range(len(own["bounds"]) + 1, runs + 1):
            (subject,) = cases.of_mode(name.partition(",")[0], randomness=Randomness.of(seed=seed), **sections)
            finding = audit(subject, effort=EFFORT)
            own["claim"] = finding.epsilon
            own["bounds"].append(round(finding.bound, 4))
            own["refuted"] += finding.refuted
            _write(found)


def _write(found: dict[str, dict[str, Any]]) -> None:
    for own in found.values():
        own["runs"] = len(own["bounds"])
        own["median"] = statistics.median(own["bounds"])
        own["exceeded"] = sum(bound > own["claim"] for bound in own["bounds"])
    RESULTS.parent.mkdir(exist_ok=True)
    text = {"explore": EFFORT.explore, "count": EFFORT.count, "confidence": 0.95, "modes": found}
    RESULTS.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
