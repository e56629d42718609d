"""What the comparison of encryptions is meant to reach, and whether it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


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


def targets(results: dict[str, Any], *, backend: str = "gmpy2") -> Iterator[Target]:
    """Yield the aims in the order they were set."""
    own = results["own"][backend]
    rows = {row["name"]: row for row in results["rows"]}
    public, subgroup = rows[f"Tacit ({backend}), public key"], rows[f"Tacit ({backend}), subgroup key, public key"]
    holder, secret = rows[f"Tacit ({backend}), key holder"], rows[f"Tacit ({backend}), subgroup key, key holder"]
    if "times_phe" in public:
        yield Target(name="encrypt, public key, times phe", aim=850, reached=public["times_phe"]["encrypt"])
        yield Target(name="encrypt, key holder, times phe", aim=1300, reached=holder["times_phe"]["encrypt"])
        yield Target(name="decrypt, times phe", aim=60, reached=public["times_phe"]["decrypt"])
        phe = rows["phe"]["decrypt"]
        plain = own["decrypt_standard_with_plain_powers"]
        yield Target(name="  the same if powers could leak the exponent", aim=60, reached=phe / plain)
        yield Target(
            name="subgroup key: encrypt, key holder, times phe", aim=2500, reached=secret["times_phe"]["encrypt"]
        )
        yield Target(
            name="subgroup key: encrypt, public key, times phe", aim=2500, reached=subgroup["times_phe"]["encrypt"]
        )
        yield Target(name="subgroup key: decrypt, times phe", aim=250, reached=subgroup["times_phe"]["decrypt"])
        plain = own["decrypt_subgroup_with_plain_powers"]
        yield Target(name="  the same if powers could leak the exponent", aim=250, reached=phe / plain)
        yield Target(name="sum of 100 vectors, times phe", aim=100, reached=public["times_phe"]["sum"])
    pool = own["microseconds_a_ciphertext"]["pool"]
    yield Target(name="noise pool, online part a ciphertext", aim=10, reached=pool, at_least=False, unit="us")
    yield Target(name="bytes a float", aim=8, reached=public["bytes"], at_least=False, unit="B")
    parse = own["parse_against_additions"]
    yield Target(name="parsing and validation, against additions", aim=1.5, reached=parse, at_least=False)
    yield Target(name="two cores: decrypt", aim=1.7, reached=own["two_cores"]["decrypt"])
    floats = own["two_cores"]["bulk_floats"]
    yield Target(name=f"two cores: encrypt {floats:,} floats", aim=1.7, reached=own["two_cores"]["bulk_encrypt"])
    memory = own["memory"]["peak_megabytes"]
    yield Target(name="memory for 1,000,000 floats", aim=300, reached=memory, at_least=False, unit="MB")
