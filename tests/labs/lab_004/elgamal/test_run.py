"""The ElGamal lab with groups that are far too small, so that it takes seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tacit.crypto import elgamal, groups
from tacit.crypto.elgamal import Ciphertext, PrivateKey, PublicKey
from tacit_labs.harness import files, quoted
from tacit_labs.harness.experiment import Experiment, Settings, silent
from tacit_labs.harness.record import perform
from tacit_labs.lab_004.elgamal import tables
from tacit_labs.lab_004.elgamal.checks import chi_square, products, randomness, symbols, view
from tacit_labs.lab_004.elgamal.measured import Measured, Prime, Sizes
from tacit_labs.lab_004.elgamal.page import findings, reproduction
from tacit_labs.lab_004.elgamal.run import EXPERIMENT, measure

TINY = Sizes(
    key_bits=(128, 288),
    searches=((64, 2), (128, 1)),
    candidates=5,
    count=1,
    count_textbook=1,
    repeats=1,
    batches=(1, 4),
    batch_bits=288,
    random=1,
    check_bits=(128,),
    ciphertexts=200,
    guesses=30,
)


@pytest.fixture(scope="module")
def found() -> Measured:
    return measure(TINY, silent)


@pytest.fixture(scope="module")
def keys() -> tuple[PublicKey, PrivateKey]:
    return elgamal.generate(groups.generate(128, insecure_key_size=True), insecure_key_size=True)


class Liar:
    """Decrypts, and is wrong about one number."""

    def __init__(self, private: PrivateKey, about: int) -> None:
        self._private = private
        self._about = about

    def decrypt(self, ciphertext: Ciphertext) -> int:
        number = self._private.decrypt(ciphertext)
        return number + 1 if number == self._about else number


class Stuck:
    """A public key that encrypts a number always alike."""

    def __init__(self, public: PublicKey) -> None:
        self.group = public.group
        self._public = public

    def encrypt_many(self, messages: list[int], *, workers: int | None = None) -> Ciphertext:
        one = self._public.encrypt_many(messages[:1], workers=workers)
        rows = [np.repeat(half, len(messages), axis=0) for half in (one.first, one.second)]
        return Ciphertext(key=self._public, first=rows[0], second=rows[1])


def test_products_and_powers_pass_on_small_and_large_integers(keys: tuple[PublicKey, PrivateKey]) -> None:
    checks = products(*keys, random=3)
    assert len(checks) == 8
    assert {one.verdict for one in checks} == {"PASS"}


def test_a_wrong_product_fails_its_rows_only(keys: tuple[PublicKey, PrivateKey]) -> None:
    public, private = keys
    failed = [one for one in products(public, Liar(private, about=42), random=0) if not one.passed]
    assert {(one.operation, one.integers) for one in failed} == {
        ("multiply", "small, up to 10 bits"),
        ("multiply, re-randomise", "small, up to 10 bits"),
    }
    assert failed[0].example == "6 × 7 = 43, expected 42"


def test_a_failure_is_red_and_said_at_the_top(found: Measured) -> None:
    (bits, made), *others = found.checks.items()
    spoiled = tuple(replace(one, wrong=int(place == 1)) for place, one in enumerate(made))
    wrong = replace(found, checks={bits: spoiled, **dict(others)})
    assert [tables.checks(wrong).tones[row, 4] for row in range(3)] == ["good", "bad", "good"]
    assert "**FAIL** in 1" in findings(wrong)[-1].ours
    assert "all PASS" in findings(found)[-1].ours


def test_ciphertexts_of_one_number_differ(found: Measured) -> None:
    assert found.randomness.different == TINY.ciphertexts
    assert tables.looks(found).rows[0][-1] == "PASS"


def test_a_key_without_randomness_fails(found: Measured, keys: tuple[PublicKey, PrivateKey]) -> None:
    looks = randomness(cast("PublicKey", Stuck(keys[0])), message=42, count=50)
    table = tables.looks(replace(found, randomness=looks))
    assert looks.different == 1
    verdicts = [row[-1] for row in table.rows if row[-1]]
    assert len(verdicts) == 5
    assert verdicts[0] == "FAIL"
    assert verdicts.count("FAIL") >= 4  # the one ciphertext may happen to have as many ones as zeros
    assert list(table.tones.values()).count("bad") == verdicts.count("FAIL")


def test_uniform_numbers_look_uniform_and_small_ones_do_not() -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 256, (400, 32), np.uint8)
    even = view(rows, 1 << 256)
    assert even.bucket_p > 1e-4
    assert even.byte_p > 1e-4
    assert abs(even.ones_z) < 4
    assert abs(even.flips_z) < 4
    assert sum(even.buckets) == 400
    uneven = view(rows & np.uint8(0x7F), 1 << 256)
    assert uneven.bucket_p < 1e-9
    assert uneven.byte_p < 1e-9
    assert uneven.ones_z < -4
    assert uneven.flips_z < -4


def test_chi_square_is_that_of_the_tables() -> None:
    assert chi_square([10, 20, 30]) == pytest.approx(0.0067379, rel=1e-3)  # 10 with two degrees: exp(-5)


def test_only_the_textbook_tells_squares_from_others(keys: tuple[PublicKey, PrivateKey]) -> None:
    seen = symbols(keys[0], count=40)
    assert seen.textbook == 40
    assert seen.tacit < 40


def test_the_labs_prime_stands_beside_ours(found: Measured) -> None:
    sizes = replace(found.sizes, key_bits=(*TINY.key_bits, 1024))
    long = [
        Prime(bits=1024, by="textbook", seconds=200.0, expected_candidates=1.0),
        Prime(bits=1024, by="Tacit", seconds=0.5, expected_candidates=1.0),
    ]
    shown = replace(found, sizes=sizes, primes=(*found.primes, *long))
    rows = [row for row in tables.before_and_after(shown).rows if row[0] == "1024"]
    assert rows == [("1024", "safe prime", "119.5 s", "200 s", "500 ms", "400x", None, None)]
    assert quoted.SAFE_PRIME == {1024: 119.5}


def test_page_and_files(found: Measured, tmp_path: Path) -> None:
    experiment = Experiment(
        name=EXPERIMENT.name,
        title=EXPERIMENT.title,
        source=EXPERIMENT.source,
        run=lambda *_: reproduction(found, "less of everything"),
    )
    files.write(perform(experiment, Settings(quick=True, out=tmp_path)), tmp_path)
    page = (tmp_path / "lab-elgamal.html").read_text()
    for words in ("PASS", "too short for use", "extrapolated", found.here.machine.processor):
        assert words in page, words
    kept = json.loads((tmp_path / "lab-elgamal.json").read_text())
    assert kept["data"]["symbols"]["right"]["textbook"] == found.guesses.textbook
