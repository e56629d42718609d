"""Many quick audits of each mode as it is: how often one says that the claim is false, and how close it comes.

Settings are small ones of each mode, with so little noise that an audit sees something; seeds are 1, 2, 3, ...; what
is in the file already is kept.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from tacit.audit import cases
from tacit.audit.audit import Effort, audit
from tacit.audit.subject import Subject
from tacit.flower.strategy import audited
from tacit.randomness import Randomness

EFFORT = Effort(explore=20, count=100)
FLOWER = "Flower's Private, dp"
MODES: dict[str, dict[str, Any]] = {
    "dp": {"dp": {"noise": 1.0}, "federate": {"clients": 5}},
    "dp, half of the clients": {"dp": {"noise": 1.0}, "federate": {"clients": 10, "per_round": 5}},
    "local-dp": {"dp": {"noise": 1.0}},
    "nbafl": {"nbafl": {"epsilon": 400.0, "smallest": 1}},
    FLOWER: {},
    "signds": {"signds": {"sign_eps": 4.0, "rr_eps": 2.0}},
    "dp-sgd": {"dpsgd": {"noise": 1.0, "batch_size": 1000}},
    "paillier": {"dp": {"noise": 1.0}},
    "masks": {"dp": {"noise": 1.0}},
}


def measure(runs: int, results: Path) -> None:
    """Audit every mode so many times, and write after each audit."""
    found: dict[str, dict[str, Any]] = json.loads(results.read_text())["modes"] if results.is_file() else {}
    for name, sections in MODES.items():
        own = found.setdefault(name, {"bounds": [], "refuted": 0})
        for seed in range(len(own["bounds"]) + 1, runs + 1):
            finding = audit(_subject(name, sections, seed), effort=EFFORT)
            own["claim"] = finding.epsilon
            own["bounds"].append(round(finding.bound, 4))
            own["refuted"] += finding.refuted
            _write(found, results)


def _subject(name: str, sections: dict[str, Any], seed: int) -> Subject:
    if name == FLOWER:
        return audited.subject(seed=seed)
    (found,) = cases.of_mode(name.partition(",")[0], randomness=Randomness.of(seed=seed), **sections)
    return found


def _write(found: dict[str, dict[str, Any]], results: Path) -> None:
    for own in found.values():
        own["runs"] = len(own["bounds"])
        own["median"] = statistics.median(own["bounds"])
        own["exceeded"] = sum(bound > own["claim"] for bound in own["bounds"])
    text = {"explore": EFFORT.explore, "count": EFFORT.count, "confidence": 0.95, "modes": found}
    results.write_text(json.dumps(text, indent=1) + "\n")
