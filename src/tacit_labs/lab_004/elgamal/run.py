"""Report 004's ElGamal again: its algorithms beside Tacit's, in the order of its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.crypto import elgamal, groups
from tacit.storage import write_atomically
from tacit_labs.bench.worker import Worker
from tacit_labs.harness.experiment import Progress
from tacit_labs.harness.files import ADVICE
from tacit_labs.harness.measuring import here
from tacit_labs.lab_004.elgamal import quoted
from tacit_labs.lab_004.elgamal.checks import products, randomness, symbols
from tacit_labs.lab_004.elgamal.jobs import REPORT, TACIT
from tacit_labs.lab_004.elgamal.measured import Batch, Factoring, Measured, Products, Sizes, Stages

_JOBS = "tacit_labs.lab_004.elgamal.jobs"
_SHOWN = 5  # ciphertexts of the report's number
FULL = Sizes(
    repeats={bits: row.repeats for bits, row in quoted.STAGES.items()},
    factoring={64: (1000, 600.0), 128: (100, 600.0), 256: (10, 60.0), 512: (3, 30.0), 1024: (1, 30.0)},
    without_curves={64: (200, 60.0), 128: (5, 10.0)},
    batches=tuple(quoted.PER_MESSAGE),
    batch=quoted.BATCH,
    product_repeats=quoted.PRODUCT_REPEATS,
    powers={64: 2000, 128: 1000, 256: 300, 512: 100, 1024: 30},
)
QUICK = Sizes(
    repeats={64: 100, 128: 20, 256: 3, 512: 1},
    factoring={64: (100, 4.0), 128: (5, 4.0)},
    without_curves={64: (30, 4.0)},
    batches=(64, 128),
    batch=50,
    product_repeats=200,
    powers={64: 200, 128: 100, 256: 30, 512: 10},
    random=5,
    check_bits=(128,),
    ciphertexts=500,
    guesses=50,
)


def smaller(sizes: Sizes) -> str:
    """Return what is smaller than in the full run."""
    if sizes == FULL:
        return ""
    return (
        f"ElGamal: keys up to {max(sizes.repeats)} bits instead of {max(FULL.repeats)} and fewer of them; p - 1 "
        f"factored up to {max(sizes.factoring)} bits instead of {max(FULL.factoring)}; "
        f"batches of {sizes.batch} up to {max(sizes.batches)} bits instead of {FULL.batch:,} up to {max(FULL.batches)}."
    )


def measure(sizes: Sizes, folder: Path, progress: Progress) -> Measured:
    """Check, look and time; what was timed is kept in ``folder``, so that a run that was stopped goes on."""
    made = {}
    for bits in sizes.check_bits:
        progress(f"ElGamal: products at {bits} bits")
        group = groups.generate(bits, insecure_key_size=True)
        made[bits] = products(*elgamal.generate(group, insecure_key_size=True), random=sizes.random)
    progress("ElGamal: ciphertexts of one number")
    group = groups.generate(quoted.MESSAGE_BITS, insecure_key_size=True)
    public, _ = elgamal.generate(group, insecure_key_size=True)
    with (
        Worker(_JOBS, settings={"SYMPY_GROUND_TYPES": "python"}) as report,
        Worker(_JOBS) as tacit,
    ):
        asked = _Asked(workers={REPORT: report, TACIT: tacit}, path=folder / "elgamal.json", progress=progress)
        stages = {
            by: {
                bits: Stages(**asked(by, "stages", by=by, bits=bits, repeats=repeats))
                for bits, repeats in sizes.repeats.items()
            }
            for by in (REPORT, TACIT)
        }
        product = {"left": quoted.LEFT, "right": quoted.RIGHT, "bits": quoted.MESSAGE_BITS}
        found = {
            by: Products(**asked(by, "products", by=by, repeats=sizes.product_repeats, **product))
            for by in (REPORT, TACIT)
        }
        look = {"bits": quoted.MESSAGE_BITS, "message": quoted.MESSAGE, "count": _SHOWN}
        ciphertexts = asked(REPORT, "randomness", **look)["ciphertexts"]
        powers = {
            bits: asked(REPORT, "powers", bits=bits, repeats=repeats)["seconds"]
            for bits, repeats in sizes.powers.items()
        }
        batches = {
            by: {
                bits: Batch(
                    **{
                        keys: asked(by, "batch", by=by, bits=bits, count=sizes.batch, keys=keys)["seconds"]
                        for keys in ("each", "one", *(("vector",) if by == TACIT else ()))
                    }
                )
                for bits in sizes.batches
            }
            for by in (REPORT, TACIT)
        }
        factoring = {
            bits: _factoring(asked, bits, repeats, limit) for bits, (repeats, limit) in sizes.factoring.items()
        }
        without = {
            bits: _factoring(asked, bits, repeats, limit, curves=False)
            for bits, (repeats, limit) in sizes.without_curves.items()
        }
        version = str(asked(REPORT, "which")["sympy"])
    return Measured(
        here=here(),
        sympy=version,
        sizes=sizes,
        checks=made,
        looks=randomness(public, message=quoted.MESSAGE, count=sizes.ciphertexts),
        guesses=symbols(public, count=sizes.guesses),
        ciphertexts=ciphertexts,
        report=stages[REPORT],
        tacit=stages[TACIT],
        factoring=factoring,
        without_curves=without,
        report_batch=batches[REPORT],
        tacit_batch=batches[TACIT],
        report_product=found[REPORT],
        tacit_product=found[TACIT],
        powers=powers,
    )


def _factoring(asked: _Asked, bits: int, repeats: int, limit: float, **how: bool) -> Factoring:
    """Ask for keys a few at a time, so that little is lost if the run is stopped."""
    few = max(1, repeats // 10)
    made = [
        asked(REPORT, "factoring", part=part, bits=bits, repeats=min(few, repeats - part), limit=limit, **how)
        for part in range(0, repeats, few)
    ]
    return Factoring(
        seconds=[seconds for one in made for seconds in one["seconds"]],
        given_up=sum(one["given_up"] for one in made),
        limit=limit,
    )


class _Asked:
    """Asks workers, and keeps every answer on disk at once: some take minutes."""

    def __init__(self, *, workers: Mapping[str, Worker], path: Path, progress: Progress) -> None:
        self._workers = workers
        self._path = path
        self._progress = progress
        self._answers: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def __call__(self, who: str, job: str, *, part: int = 0, **arguments: Any) -> dict[str, Any]:
        key = json.dumps([who, job, arguments, *([part] if part else [])], sort_keys=True)
        if key not in self._answers:
            self._progress(f"ElGamal: {_words(job, arguments)}, {'Tacit' if who == TACIT else 'the report’s way'}")
            self._answers[key] = self._workers[who].ask(job, **arguments)
            write_atomically(self._path, json.dumps(self._answers).encode(), advice=ADVICE)
        return self._answers[key]


def _words(job: str, arguments: Mapping[str, Any]) -> str:
    bits = f" at {arguments['bits']} bits" if "bits" in arguments else ""
    keys = {"each": ", a key each", "one": ", one key", "vector": ", one call"}.get(str(arguments.get("keys")), "")
    return f"{job}{keys}{bits}"
