"""Results of a comparison of simulations that nobody measured."""

from __future__ import annotations

from tacit_labs.bench.machine import Machine
from tacit_labs.bench.simulation.measured import Results, Row


def results() -> Results:
    """Return results in which Tacit does four rounds in the time of one of the student's."""

    def row(peer: str, job: str, seconds: float, cohort: int, faster: float) -> Row:
        own = peer == "tacit"
        return Row(
            peer=peer,
            title="Tacit" if own else "a student's loop",
            version="1.2",
            job=job,
            cohort=cohort,
            seconds=seconds,
            best_of_each_process=[seconds],
            notes="one process",
            faster_by=faster,
            around_training=0.031 if own else None,
        )

    return Results(
        machine=Machine(processor="a processor", cores=2, system="Linux", python="3.11.0", packages={"torch": "2.9"}),
        two_processes_against_one=1.97,
        quick=True,
        repeats=1,
        rounds={"device": 3, "silo": 2},
        absent={"pfl-research": "not installed; install it <elsewhere>"},
        rows=[
            row("student", "device", 1.0, 100, 4.0),
            row("tacit", "device", 0.25, 100, 1.0),
            row("student", "silo", 6.0, 10, 5.0),
            row("tacit", "silo", 1.2, 10, 1.0),
        ],
    )
