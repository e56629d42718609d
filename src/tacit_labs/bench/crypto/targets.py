"""What the comparison of encryptions is meant to reach, and whether it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tacit_labs.bench.crypto.measured import Own, Ratios, Results, Row


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure with its aim, for the portable backend on one thread where nothing else is said."""

    name: str
    aim: float
    reached: float
    at_least: bool = True
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the aim was reached."""
        return self.reached >= self.aim if self.at_least else self.reached <= self.aim


def targets(results: Results, *, backend: str = "gmpy2") -> Iterator[Target]:
    """Yield the aims in the order they were set."""
    own = results.own[backend]
    rows = {row.name: row for row in results.rows}
    public = rows[f"Tacit ({backend}), public key"]
    if "phe" in rows:
        yield from _against_phe(rows, own, backend)
    pool = own.microseconds_a_ciphertext["pool"]
    yield Target(name="noise pool, online part per ciphertext", aim=10, reached=pool, at_least=False, unit="us")
    yield Target(name="bytes per float", aim=8, reached=public.bytes, at_least=False, unit="B")
    parse = own.parse_against_additions
    yield Target(name="parsing and validation, against additions", aim=1.5, reached=parse, at_least=False)
    yield Target(name="two cores: decrypt", aim=1.7, reached=own.two_cores.decrypt)
    floats = own.two_cores.bulk_floats
    yield Target(name=f"two cores: encrypt {floats:,} floats", aim=1.7, reached=own.two_cores.bulk_encrypt)
    memory = own.memory.peak_megabytes
    yield Target(name="memory for 1,000,000 floats", aim=300, reached=memory, at_least=False, unit="MB")


def _against_phe(rows: Mapping[str, Row], own: Own, backend: str) -> Iterator[Target]:
    def times(way: str) -> Ratios:
        ratios = rows[f"Tacit ({backend}), {way}"].times_phe
        assert ratios is not None, "phe is among the rows"
        return ratios

    standard, holder = times("public key"), times("key holder")
    subgroup, secret = times("subgroup key, public key"), times("subgroup key, key holder")
    phe = rows["phe"].decrypt
    yield Target(name="encrypt, public key, times phe", aim=850, reached=standard.encrypt)
    yield Target(name="encrypt, key holder, times phe", aim=1300, reached=holder.encrypt)
    yield Target(name="decrypt, times phe", aim=60, reached=standard.decrypt)
    plain = own.decrypt_standard_with_plain_powers
    yield Target(name="  the same if powers could leak the exponent", aim=60, reached=phe / plain)
    yield Target(name="subgroup key: encrypt, key holder, times phe", aim=2500, reached=secret.encrypt)
    yield Target(name="subgroup key: encrypt, public key, times phe", aim=2500, reached=subgroup.encrypt)
    yield Target(name="subgroup key: decrypt, times phe", aim=250, reached=subgroup.decrypt)
    plain = own.decrypt_subgroup_with_plain_powers
    yield Target(name="  the same if powers could leak the exponent", aim=250, reached=phe / plain)
    yield Target(name="sum of 100 vectors, times phe", aim=100, reached=standard.sum)
