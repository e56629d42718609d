"""Results of a comparison of simulations that nobody measured."""

from __future__ import annotations

from typing import Any


def results() -> dict[str, Any]:
    """Return results in which Tacit does four rounds in the time of one of the student's."""

    def row(peer: str, title: str, job: str, seconds: float, cohort: int, faster: float) -> dict[str, Any]:
        return {
            "peer": peer,
            "title": title,
            "version": "1.2",
            "job": job,
            "seconds": seconds,
            "rounds_a_second": 1 / seconds,
            "clients_a_second": cohort / seconds,
            "best_of_each_process": [seconds],
            "notes": "one process",
            "tacit_is_faster_by": faster,
        }

    own = {"around_training": 0.031}
    return {
        "machine": {
            "processor": "a processor",
            "cores": 2,
            "system": "Linux",
            "python": "3.11.0",
            "packages": {"torch": "2.9"},
            "two_processes_against_one": 1.97,
        },
        "quick": True,
        "repeats": 1,
        "rounds": {"device": 3, "silo": 2},
        "absent": {"pfl-research": "not installed; install it <elsewhere>"},
        "rows": [
            row("student", "a student's loop", "device", 1.0, 100, 4.0),
            row("tacit", "Tacit", "device", 0.25, 100, 1.0) | own,
            row("student", "a student's loop", "silo", 6.0, 10, 5.0),
            row("tacit", "Tacit", "silo", 1.2, 10, 1.0) | own,
        ],
    }
