"""The peers' side of the comparison of encryptions; it runs in whichever environment has them installed.

Each peer is used as its documentation shows. Paillier libraries encrypt one float a
ciphertext, so a sample of floats is timed; TenSEAL packs, so whole vectors are.
"""

from __future__ import annotations

import functools
import importlib
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tacit_labs.bench.machine import version_of
from tacit_labs.bench.worker import clocked, serve

_SCALE = 1 << 23


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A library at work: what ``encrypt`` makes of floats in [-1, 1], ``decrypt`` opens and ``add`` adds.

    Attributes:
        size: the bytes of ciphertexts on the wire.
    """

    package: str
    encrypt: Callable[[list[float]], list[Any]]
    decrypt: Callable[[list[Any]], list[float]]
    size: Callable[[list[Any]], int]
    add: Callable[[list[Any], list[Any]], list[Any]] = lambda left, right: list(map(operator.add, left, right))


def phe() -> Peer:
    """Return python-paillier with gmpy2; one exponent for all floats, which makes its additions cheapest."""
    public, private = _phe_keys(2048)
    return Peer(
        package="phe",
        encrypt=lambda values: [public.encrypt(value, precision=1 / _SCALE) for value in values],
        decrypt=lambda ciphertexts: [private.decrypt(one) for one in ciphertexts],
        size=lambda ciphertexts: sum(_length(one.ciphertext(be_secure=False)) for one in ciphertexts),
    )


def lightphe() -> Peer:
    """Return lightphe on integers: it scales floats to integers as well."""
    system = importlib.import_module("lightphe").LightPHE(algorithm_name="Paillier", key_size=2048)
    modulus = system.cs.plaintext_modulo

    def decrypt(ciphertexts: list[Any]) -> list[float]:
        plain = [system.decrypt(one) for one in ciphertexts]
        return [(m - modulus if 2 * m > modulus else m) / _SCALE for m in plain]

    return Peer(
        package="lightphe",
        encrypt=lambda values: [system.encrypt(round(value * _SCALE) % modulus) for value in values],
        decrypt=decrypt,
        size=lambda ciphertexts: sum(_length(one.value) for one in ciphertexts),
    )


def pypaillier() -> Peer:
    """Return pypaillier, in Rust over GMP with noise after Damgård, Jurik and Nielsen; it is told to use one thread."""
    module = importlib.import_module("paillier")
    public, secret = module.generate_keypair(2048)
    return Peer(
        package="pypaillier",
        encrypt=lambda values: [bytes(one) for one in module.encrypt_many(public, values)],
        decrypt=lambda ciphertexts: [module.decrypt(secret, one) for one in ciphertexts],
        size=lambda ciphertexts: sum(map(len, ciphertexts)),
        add=lambda left, right: [module.add_many(public, pair) for pair in zip(left, right, strict=True)],
    )


def tenseal_ckks() -> Peer:
    """Return TenSEAL's CKKS with the parameters of its tutorials: approximate."""
    module = importlib.import_module("tenseal")
    context = module.context(module.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60], n_threads=1)
    context.global_scale = 2**40
    return Peer(
        package="tenseal",
        encrypt=lambda values: [module.ckks_vector(context, part) for part in _parts(values)],
        decrypt=lambda ciphertexts: [value for one in ciphertexts for value in one.decrypt()],
        size=_serialised,
    )


def tenseal_bfv() -> Peer:
    """Return TenSEAL's BFV with parameters tuned for exact sums of 100 vectors of 24-bit numbers."""
    module = importlib.import_module("tenseal")
    plain = 2147565569  # a prime above 2^31 that is 1 modulo 2 * 4096
    context = module.context(module.SCHEME_TYPE.BFV, 4096, plain, coeff_mod_bit_sizes=[60, 49], n_threads=1)
    return Peer(
        package="tenseal",
        encrypt=lambda values: [
            module.bfv_vector(context, [round(value * _SCALE) for value in part]) for part in _parts(values)
        ],
        decrypt=lambda ciphertexts: [value / _SCALE for one in ciphertexts for value in one.decrypt()],
        size=_serialised,
    )


PEERS: dict[str, Callable[[], Peer]] = {
    "phe": phe,
    "lightphe": lightphe,
    "pypaillier": pypaillier,
    "TenSEAL CKKS": tenseal_ckks,
    "TenSEAL BFV": tenseal_bfv,
}
_made: dict[str, Peer] = {}


def prepare(*, peer: str) -> dict[str, Any]:
    """Make a peer's keys, and say its version."""
    _made[peer] = PEERS[peer]()
    return {"version": version_of(_made[peer].package), "package": _made[peer].package}


def work(*, peer: str, job: str, sample: int) -> dict[str, Any]:
    """Encrypt, decrypt or add ``sample`` floats, and see that nothing was lost."""
    library = _made[peer]
    values = [math.sin(place**1.5) for place in range(sample)]
    made: list[Any] = []
    took = clocked(lambda: made.extend(library.encrypt(values)))
    if job == "decrypt":
        found: list[float] = []
        took = clocked(lambda: found.extend(library.decrypt(made)))
        assert max(abs(a - b) for a, b in zip(found, values, strict=True)) < 1e-5
    elif job == "add":
        rounds = 10  # one is too short for the clock
        took = clocked(lambda: [library.add(made, made) for _ in range(rounds)])
        took = {name: seconds / rounds for name, seconds in took.items()}
    return {**took, "sample": sample, "bytes": library.size(made), "floats": sample}


def labs(*, bits: int, repeats: int) -> dict[str, Any]:
    """Do the labs' exercise with phe at 1024 bits."""
    public, private = _phe_keys(1024)
    numbers = [(pow(3, 1000 + k, 1 << (bits - 1)), pow(5, 1000 + k, 1 << (bits - 1))) for k in range(repeats)]
    sums: list[int] = []
    took = clocked(lambda: sums.extend(private.decrypt(public.encrypt(a) + public.encrypt(b)) for a, b in numbers))
    assert sums == [a + b for a, b in numbers]
    return {**took, "repeats": repeats}


@functools.cache
def _phe_keys(bits: int) -> Any:
    return importlib.import_module("phe.paillier").generate_paillier_keypair(n_length=bits)


def _serialised(ciphertexts: list[Any]) -> int:
    return sum(len(one.serialize()) for one in ciphertexts)


def _parts(values: list[Any]) -> list[list[Any]]:
    return [values[start : start + 4096] for start in range(0, len(values), 4096)]


def _length(number: int) -> int:
    return (int(number).bit_length() + 7) // 8


if __name__ == "__main__":
    serve({"prepare": prepare, "work": work, "labs": labs})
