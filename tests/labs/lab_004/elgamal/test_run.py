"""Report 004's ElGamal with keys that are far too small, so that it takes seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tacit.crypto import elgamal, groups
from tacit.crypto.elgamal import Ciphertext, PrivateKey, PublicKey
from tacit_labs.bench.worker import Worker
from tacit_labs.harness.experiment import silent
from tacit_labs.lab_004.elgamal import jobs, page, quoted, run, tables
from tacit_labs.lab_004.elgamal.checks import chi_square, products, randomness, symbols, view
from tacit_labs.lab_004.elgamal.measured import Factoring, Measured, Sizes

TINY = Sizes(
    repeats={64: 2, 128: 1},
    factoring={64: (2, 20.0)},
    without_curves={64: (2, 20.0)},
    batches=(64,),
    batch=3,
    product_repeats=2,
    powers={64: 2},
    random=1,
    check_bits=(128,),
    ciphertexts=200,
    guesses=30,
)
SOURCE = Path(__file__).parents[5] / "shared" / "sources" / "004_a69ec1a5888a3c07.txt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def found(folder: Path) -> Measured:
    return run.measure(TINY, folder, silent)


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


def test_what_is_quoted_stands_in_the_report() -> None:
    if not SOURCE.exists():
        pytest.skip("the source documents are not beside the checkout")
    lines = SOURCE.read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    numbers = [[float(cell) for cell in row] for row in cells if all(_number(cell) for cell in row)]
    for bits, stage in quoted.STAGES.items():
        assert [bits, stage.key, stage.encrypt, stage.decrypt] in numbers
        before = quoted.KEY_BEFORE[bits]
        if before is None:
            assert [str(bits), "用时过长", f"{stage.key:.2f}"] in cells
        else:
            assert [bits, before, stage.key] in numbers
    for bits, pair in quoted.PER_MESSAGE.items():
        assert [bits, *pair] in numbers
    text = "\n".join(lines)
    counts = "、".join(str(stage.repeats) for stage in quoted.STAGES.values())
    for words in (counts, "耗时为0.194ms", "耗时为0.101ms", "a=5和b=24", "明文为123456，密钥长度为128", "测试1000次"):
        assert words in text, words


def _number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit()


def test_the_full_run_has_the_reports_sizes_and_repeats() -> None:
    assert run.FULL.repeats == {64: 1000, 128: 100, 256: 10, 512: 3, 1024: 1}
    assert (run.FULL.batch, run.FULL.batches) == (1000, (64, 128, 256))
    assert run.smaller(run.FULL) == ""
    assert "batches of 3 up to 64 bits instead of 1,000 up to 256" in run.smaller(TINY)


def test_every_repeat_is_kept(found: Measured) -> None:
    assert [len(found.report[64].key), len(found.tacit[128].decrypt)] == [2, 1]
    assert found.factoring[64].tried == found.without_curves[64].tried == 2
    assert found.report_product.result == found.tacit_product.result == 120
    assert found.tacit_batch[64].vector is not None
    assert found.sympy


def test_a_run_that_was_stopped_asks_nothing_twice(
    found: Measured, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (folder / "elgamal.json").exists()

    def refuse(self: Worker, job: str, /, **arguments: object) -> dict[str, object]:
        pytest.fail(f"{job} was asked again with {arguments}")

    monkeypatch.setattr(Worker, "ask", refuse)
    again = run.measure(TINY, folder, silent)
    assert (again.report, again.factoring, again.powers) == (found.report, found.factoring, found.powers)


def test_the_reports_numbers_stand_beside_ours(found: Measured) -> None:
    rows = tables.stages(found).rows
    assert rows[0][:3] == ("64", "1: key generation", "5.74")
    assert rows[1][2] == "0.049"
    assert rows[0][-1] == "2 of 1,000"
    first, second = tables.keys(found).rows
    assert first[:2] == ("64", "7.97")
    assert (second[1], second[2]) == ("1,868.80", None)  # not factored here
    assert tables.batches(found).rows[0][1:4] == ("the report", "6.24", "0.097")
    assert tables.products(found).rows[0] == ("the report", "120", "0.194", "0.101", "1.92x")


def test_a_factorisation_that_was_given_up_is_a_lower_bound(found: Measured) -> None:
    some = Factoring(seconds=[1.0, 3.0], given_up=2, limit=20.0)
    assert some.mean == 11.0
    shown = replace(found, factoring={64: some, 128: Factoring(seconds=[], given_up=1, limit=20.0)})
    first, second = tables.keys(shown).rows
    assert (first[2], first[-1]) == ("≥ 11,000", "2 of 4")
    assert second[2] == "given up after 20 s"


def test_factoring_gives_up_in_time() -> None:
    made = jobs.factoring(bits=768, repeats=1, limit=0.05)
    assert made["given_up"] + len(made["seconds"]) == 1  # a lucky p - 1 has small factors only


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
    said = {one.what: one.ours for one in page.findings(wrong)}
    assert "**FAIL** in 1" in said["5 × 24 = 120 under encryption, milliseconds"]
    said = {one.what: one.ours for one in page.findings(found)}
    assert "all PASS" in said["5 × 24 = 120 under encryption, milliseconds"]


def test_ciphertexts_of_the_reports_number_differ(found: Measured) -> None:
    assert (found.looks.message, found.looks.bits) == (123456, 128)
    assert found.looks.different == TINY.ciphertexts
    assert tables.looks(found).rows[0][-1] == "PASS"
    assert len({tuple(pair) for pair in found.ciphertexts}) == len(tables.ciphertexts(found).rows) == 5


def test_a_key_without_randomness_fails(found: Measured, keys: tuple[PublicKey, PrivateKey]) -> None:
    looks = randomness(cast("PublicKey", Stuck(keys[0])), message=42, count=50)
    table = tables.looks(replace(found, looks=looks))
    assert looks.different == 1
    verdicts = [row[-1] for row in table.rows if row[-1]]
    assert len(verdicts) == 5
    assert verdicts[0] == "FAIL"
    assert verdicts.count("FAIL") >= 3  # the one ciphertext may happen to have as many ones as zeros
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


def test_json_holds_what_was_measured_and_what_was_quoted(found: Measured) -> None:
    kept = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert kept["quoted"]["key_before_ms"] == {"64": 7.97, "128": 1868.8, "256": 102292.4, "512": None, "1024": None}
    assert kept["stages"]["report"]["64"]["key"] == list(found.report[64].key)
