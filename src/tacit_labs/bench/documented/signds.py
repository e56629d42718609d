"""What SignDS takes: bytes on the wire, planning, choosing, coding, and the server's sum.

Times are the best of several; one thread, NumPy only.
"""

from __future__ import annotations

import platform
import resource
from typing import Any

import numpy as np

from tacit import wire
from tacit.federated.plan import ServerOptimizer
from tacit.mechanisms import selection
from tacit.mechanisms.magnitude import MagnitudeEstimate
from tacit.mechanisms.mechanism import Work
from tacit.mechanisms.randomized_response import RandomizedResponse
from tacit.mechanisms.signds import SignDS
from tacit.protocols.reports import Report, ReportCode, ReportCount, code_bits
from tacit.protocols.signs import SignSum
from tacit.randomness import Randomness
from tacit.wire import Task, Turn
from tacit_labs.bench.documented.common import best

SYSTEM = Randomness.of(seed=None)
GENERATOR = Randomness.of(seed=1).stream("updates")


def mechanism(epsilon: float, clients: int = 100) -> SignDS:
    """Return SignDS as documented, at another epsilon."""
    return SignDS(
        share=0.2,
        epsilon=epsilon,
        ratio=0.6,
        fixed_step=4.0,
        population=clients,
        expected_clients=float(clients),
        magnitude=MagnitudeEstimate(response=RandomizedResponse(epsilon=5.0)),
    )


def some_set(dimensions: int, chosen: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a random set in ascending order."""
    found = np.unique(GENERATOR.integers(dimensions, size=2 * chosen))
    return np.sort(GENERATOR.permutation(found)[:chosen])


def uploads() -> list[dict[str, Any]]:
    """Measure what a client sends, through the protocol's own client half."""
    rows = []
    for name, dimensions, epsilon in (("LeNet", 66_404, 100.0), ("CNN", 21_840, 10.0), ("CNN", 21_840, 100.0)):
        one = mechanism(epsilon).fitted((dimensions,))
        update = GENERATOR.normal(size=dimensions).astype(np.float32)
        task = wire.pack_task(Task(turn=Turn(round_number=1), model=update, extras=one.public_state()))
        work = Work(update=update, examples=1, loss=0.0)
        vector = one.on_client(work, SYSTEM)
        reply = SignSum(minimum_clients=1, named=one.named).client(b"", wire.unpack(task), vector)[1]
        clear = len(wire.pack_vector(Turn(round_number=1), update))
        rows.append(
            {
                "model": name,
                "dimensions": dimensions,
                "epsilon": epsilon,
                "named": one.chosen,
                "bytes": len(reply),
                "bytes_of_the_report": len(reply) - wire.BRIEF_BYTES,
                "bits_of_the_set": code_bits(dimensions, one.chosen),
                "bytes_in_the_clear": clear,
                "times_smaller": clear / len(reply),
                "client_seconds": best(lambda m=one, w=work: m.on_client(w, SYSTEM), 5),  # type: ignore[misc]  # a lambda's defaults have no types
            }
        )
    return rows


def planning() -> list[dict[str, Any]]:
    """Measure the plan, which is made once."""
    rows = []
    for dimensions, share in ((21_840, 0.2), (66_404, 0.2), (10**8, 0.01), (10**8, 0.2), (10**8, 0.25)):

        def make(dimensions: int = dimensions, share: float = share) -> selection.Selection:
            selection.plan.cache_clear()
            return selection.plan(dimensions=dimensions, share=share, epsilon=100.0)

        found = make()
        rows.append({"dimensions": dimensions, "share": share, "named": found.chosen, "seconds": best(make, 3)})
    return rows


def choosing() -> list[dict[str, Any]]:
    """Measure the choice of the largest."""
    rows = []
    for dimensions in (21_840, 66_404, 10**6, 10**7):
        chooser = selection.plan(dimensions=dimensions, share=0.2, epsilon=100.0)
        update = GENERATOR.normal(size=dimensions).astype(np.float32)
        rows.append({"dimensions": dimensions, "seconds": best(lambda c=chooser, u=update: c.split(u, 1), 9)})  # type: ignore[misc]  # a lambda's defaults have no types
    return rows


def coding() -> list[dict[str, Any]]:
    """Measure the code of a report."""
    rows = []
    for dimensions, chosen in ((21_840, 14), (66_404, 176), (10**6, 176), (10**8, 180)):
        code = ReportCode(dimensions=dimensions, chosen=chosen)
        report = Report(indices=some_set(dimensions, chosen), sign=1, bit=0)
        data = code.encode(report)
        rows.append(
            {
                "dimensions": dimensions,
                "named": chosen,
                "encode_seconds": best(lambda c=code, r=report: c.encode(r), 9),  # type: ignore[misc]  # a lambda's defaults have no types
                "decode_seconds": best(lambda c=code, d=data: c.decode(d), 9),  # type: ignore[misc]  # a lambda's defaults have no types
            }
        )
    return rows


def aggregation() -> dict[str, Any]:
    """Measure the server's work on a thousand decoded reports: checks, counts, the release and the model's step."""
    dimensions, chosen, clients = 10**6, 176, 1_000
    reports = [Report(indices=some_set(dimensions, chosen), sign=1, bit=0) for _ in range(clients)]
    server, model = mechanism(100.0, clients), np.zeros(dimensions, np.float32)

    def work() -> None:
        count = ReportCount(dimensions=dimensions, chosen=chosen, round_number=1)
        for client, report in enumerate(reports):
            count.add(client, report)
        total = np.concatenate([count.votes(), [float(count.ones), float(clients)]])
        ServerOptimizer().step(model, server.on_server(total, SYSTEM, clients=round(float(total[-1]))).update, {})

    return {"dimensions": dimensions, "named": chosen, "reports": clients, "seconds": best(work, 5)}


def measure() -> dict[str, Any]:
    """Return all figures."""
    return {
        "machine": platform.processor() or platform.machine(),
        "uploads": uploads(),
        "planning": planning(),
        "choosing": choosing(),
        "coding": coding(),
        "aggregation": aggregation(),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
