"""Results of a comparison that nobody measured."""

from __future__ import annotations

from tacit_labs.bench.crypto.measured import Labs, Memory, Own, Ratios, Results, Row, TwoCores
from tacit_labs.bench.machine import Machine


def results() -> Results:
    """Return results in which everything Tacit does takes a thousandth of what phe takes."""

    def row(name: str, seconds: float, size: float, *, scaled: bool) -> Row:
        times = Ratios(encrypt=200.0 / seconds, decrypt=60.0 / seconds, sum=40.0 / seconds)
        return Row(name=name, scaled=scaled, encrypt=seconds, decrypt=seconds, sum=seconds, bytes=size, times_phe=times)

    titles = ["public key", "key holder", "noise pool, online part"]
    titles += [f"subgroup key, {title}" for title in titles]
    own = Own(
        microseconds_a_ciphertext={"public": 600.0, "holder": 400.0, "pool": 9.0},
        parse_and_validate=0.1,
        parse_against_additions=0.5,
        parse_each_validated_alone_against_additions=1.4,
        two_cores=TwoCores(decrypt=1.9, bulk_encrypt=1.6, bulk_floats=1_000_000),
        memory=Memory(floats=1_000_000, key="standard", peak_megabytes=120.0, before_megabytes=40.0),
        decrypt_standard_with_plain_powers=0.8,
        decrypt_subgroup_with_plain_powers=0.2,
    )
    return Results(
        machine=Machine(processor="a processor", cores=2, system="Linux", python="3.11.0", packages={"gmpy2": "2.3"}),
        peers={"phe": "1.5"},
        two_processes_against_one=1.97,
        quick=True,
        key_bits=2048,
        floats=21840,
        repeats=2,
        samples={"phe and pypaillier": 10},
        absent={"lightphe": "ModuleNotFoundError: No module named 'lightphe'"},
        rows=[
            row("phe", 200.0, 512.0, scaled=True),
            *(row(f"Tacit (gmpy2), {title}", 0.2, 7.8, scaled=False) for title in titles),
        ],
        own={"gmpy2": own},
        labs=Labs(
            repeats=1000,
            timed=50,
            key_bits=1024,
            seconds={"phe": {"10": 7.1, "100": 7.2, "1000": 7.3}, "gmpy2": {"10": 1.1, "100": 1.2, "1000": 1.3}},
        ),
    )
