"""What encryption adds to a round: ten clients on this machine's cores, plain and encrypted rounds in turn.

For every backend of the arithmetic, in a process of its own:

* rounds: wall time of an encrypted round over a plain one (without evaluation), best of several, by kind of key;
* one client: the same for a round of a single client that has the machine to itself, its own part only;
* estimate: what `tacit estimate` says beforehand against what happened;
* accuracy: after six rounds with one seed, plain against encrypted.

Then a model of a million parameters with ten clients, for its peak memory.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from collections.abc import Sequence
from typing import Any

from tacit_labs.bench.documented.common import in_a_child

_MODULE = "tacit_labs.bench.documented.encrypted"

KEYS: dict[str, dict[str, Any]] = {
    "2048": {"bits": 2048},
    "2048, subgroup key": {"bits": 2048, "kind": "subgroup"},
    "3072": {"bits": 3072},
    "2048, threshold 2 of 3": {"bits": 2048, "keys": "threshold", "shares": "2/3"},
    "2048, shared key (legacy)": {"bits": 2048, "keys": "shared"},
}
LIMITS = {  # what was set out to be reached, by backend
    "gmpy2": {"2048": 1.6, "2048, subgroup key": 1.2, "3072": 2.2, "2048, threshold 2 of 3": 4.0},
    "native": {"2048": 1.1, "3072": 1.2, "2048, threshold 2 of 3": 1.8},
}


def _rounds(rounds: int, federate: dict[str, Any] | None = None, **settings: Any) -> Any:
    import tacit

    config = tacit.RunConfig(
        seed=1,
        federate={"rounds": rounds} | (federate or {}),
        evaluate={"every": settings.pop("every", 100), "train": False},
        **settings,
    )
    return tacit.run(config)


def _best(result: Any, stages: tuple[str, ...] | None = None) -> float:
    """Return the seconds of the fastest warm round: all but evaluation, or some stages."""
    return float(
        min(
            record.lasted - record.seconds["evaluate"]
            if stages is None
            else sum(record.seconds[stage] for stage in stages)
            for record in result.rounds[1:]
        )
    )


def ratios(repeats: int, keys: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Time plain and encrypted rounds in turn."""
    plain: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in keys}
    stages: dict[str, dict[str, float]] = {}
    upload = {}
    for _ in range(repeats):
        plain.append(_best(_rounds(3)))
        for name, settings in keys.items():
            result = _rounds(3, mode="paillier", paillier=settings)
            times[name].append(_best(result))
            fastest = min(result.rounds[1:], key=lambda r: r.lasted - r.seconds["evaluate"])
            stages[name] = fastest.seconds
            upload[name] = fastest.bytes_up / fastest.senders / result.parameters
    return {
        "plain_seconds": min(plain),
        "plain_all": plain,
        "encrypted": {
            name: {
                "seconds": min(times[name]),
                "all": times[name],
                "ratio": min(times[name]) / min(plain),
                "stages": stages[name],
                "upload_bytes_a_parameter": upload[name],
            }
            for name in keys
        },
    }


def one_client(repeats: int) -> dict[str, float]:
    """Time clients that have the machine to themselves: training and encryption, the pool filled meanwhile.

    Two of them, one after the other: no sum of one is opened.
    """
    two, own = {"per_round": 2, "minimum_clients": 2}, ("train", "protect")
    plain, private = [], []
    for _ in range(repeats):
        plain.append(_best(_rounds(4, two, train={"workers": 1}), own))
        hidden = _rounds(4, two, train={"workers": 1}, mode="paillier", paillier={"bits": 2048})
        private.append(_best(hidden, own))
    return {"plain_seconds": min(plain), "encrypted_seconds": min(private), "ratio": min(private) / min(plain)}


def estimates(keys: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Compare what `tacit estimate` says with the rounds that follow: their stages, and their time beyond plain ones.

    The stages miss what encryption costs clients that still train while others encrypt, on backends that hold the GIL;
    the difference of two rounds has the noise of both.
    """
    import tacit
    from tacit.modes.estimate import estimate

    found = {}
    plain = _best(_rounds(6))
    for name, settings in keys.items():
        config = tacit.RunConfig(mode="paillier", paillier=settings)
        before = estimate(config, parameters=21_840, clients=10)
        result = _rounds(4, mode="paillier", paillier=settings)
        seconds = min(sum(r.seconds[s] for s in ("protect", "aggregate", "recover")) for r in result.rounds[1:])
        upload = result.rounds[1].bytes_up / 10
        found[name] = {
            "estimated_seconds": before.round_seconds,
            "seconds": seconds,
            "ratio": before.round_seconds / seconds,
            "beyond_plain": _best(result) - plain,
            "estimated_upload": before.upload_bytes,
            "upload": upload,
        }
    return found


def accuracy() -> dict[str, float]:
    """Compare accuracy after six rounds with one seed."""
    plain = _rounds(6, every=6)
    private = _rounds(6, every=6, mode="paillier", paillier={"bits": 2048})
    return {"plain": plain.test_accuracy, "encrypted": private.test_accuracy}


def large(encrypted: bool) -> dict[str, float]:
    """Run one round of a model with about a million parameters and return the peak memory of this process."""
    import torch
    from torch import nn

    import tacit
    from tacit.randomness import Randomness

    generator = Randomness.of(seed=1).stream("clients")
    clients = [(generator.normal(size=(32, 1000)).astype("float32"), generator.integers(0, 10, 32)) for _ in range(10)]
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
    settings: dict[str, Any] = {"mode": "paillier", "paillier": {"bits": 2048}} if encrypted else {}
    result = tacit.Federation(model=model, clients=clients, seed=1, evaluate={"train": False}, **settings).fit(rounds=2)
    return {
        "parameters": result.parameters,
        "seconds": result.rounds[-1].lasted,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _job(job: str, quick: bool) -> Any:
    """Return what one child measures."""
    keys = {name: KEYS[name] for name in ("2048", "3072")} if quick else KEYS
    repeats = 1 if quick else 3
    if job == "rounds":
        return ratios(repeats, keys)
    if job == "client":
        return one_client(repeats)
    if job == "estimate":
        return estimates({name: keys[name] for name in keys if "shared" not in name})
    if job == "accuracy":
        return accuracy()
    return large(encrypted=job == "large")


def measure(*, quick: bool, backends: Sequence[str]) -> dict[str, Any]:
    """Return all figures by backend; each job has a process of its own."""
    from tacit.crypto import native

    report: dict[str, Any] = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    for backend in backends:
        if backend == "native" and native.why_not():
            print(f"native: skipped, {native.why_not()}")
            continue
        jobs = ("rounds", "client", "estimate", "accuracy", "large")
        report[backend] = {job: _child(job, backend, quick=quick) for job in jobs}
        _show(backend, report[backend])
    report["large_plain"] = _child("large_plain", "gmpy2", quick=False)
    return report


def _child(job: str, backend: str, *, quick: bool) -> Any:
    words = [job, *(["--quick"] if quick else [])]
    return in_a_child(_MODULE, *words, settings={"TACIT_CRYPTO_BACKEND": backend})


def _show(backend: str, found: dict[str, Any]) -> None:
    rounds = found["rounds"]
    print(f"{backend}: plain round {rounds['plain_seconds']:.2f} s")
    for name, entry in rounds["encrypted"].items():
        limit = LIMITS[backend].get(name)
        print(
            f"  {name:28s} {entry['seconds']:6.2f} s  {entry['ratio']:5.2f}x"
            + (f" (set out: {limit}x)" if limit else "")
            + f"  {entry['upload_bytes_a_parameter']:.2f} bytes up per parameter"
        )
    print(f"  one client on its own        {found['client']['ratio']:.2f}x")
    for name, entry in found["estimate"].items():
        print(
            f"  estimate {name:25s} {entry['estimated_seconds']:.2f} s, then {entry['seconds']:.2f} s by stages, "
            f"{entry['beyond_plain']:.2f} s beyond a plain round"
        )
    print(f"  accuracy plain {found['accuracy']['plain']:.4f}, encrypted {found['accuracy']['encrypted']:.4f}")
    print(f"  {found['large']['parameters']:,} parameters: {found['large']['peak_bytes'] / 1e9:.2f} GB at most")
    print(flush=True)


if __name__ == "__main__":  # in a child, with the backend that its environment names
    print(json.dumps(_job(sys.argv[1], "--quick" in sys.argv)))
