"""The Paillier lab with keys that are far too short, so that it takes seconds."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tacit_labs.lab_paillier import tables
from tacit_labs.lab_paillier.checks import OPERATIONS, check
from tacit_labs.lab_paillier.learning import EncryptedEpoch, Way, summary
from tacit_labs.lab_paillier.measured import Measured, Sizes
from tacit_labs.lab_paillier.page import findings, reproduction
from tacit_labs.lab_paillier.run import EXPERIMENT, FULL, QUICK, measure

from tacit.config.run_config import RunConfig
from tacit.crypto import paillier
from tacit.crypto.paillier import Ciphertext, PrivateKey
from tacit.runs.result import RoundRecord
from tacit.runs.run import run
from tacit_labs.harness import files, quoted
from tacit_labs.harness.checks import judge
from tacit_labs.harness.experiment import Experiment, Settings, silent
from tacit_labs.harness.record import perform

TINY = Sizes(
    key_bits=256,
    safe_bits=384,
    random=1,
    grid=(10, 100),
    grid_count=1,
    grid_textbook=1,
    repeats=1,
    exercises=3,
    exercises_textbook=2,
    integers=(10, 100),
    sample=1,
    sample_textbook=1,
    length=50,
    ways=(Way(name="plain"), Way(name="shared", key_bits=256, shared=True)),
    rounds=1,
    passes=1,
    clients=2,
    data={"name": "digits"},
)


@pytest.fixture(scope="module")
def found() -> Measured:
    return measure(TINY, Settings(quick=True), silent)


class Liar:
    """Decrypts, and is wrong about one number."""

    def __init__(self, private: PrivateKey, about: int) -> None:
        self._private = private
        self._about = about

    def decrypt(self, ciphertext: Ciphertext) -> int:
        number = self._private.decrypt(ciphertext)
        return number + 1 if number == self._about else number


def test_all_operations_pass_on_small_and_large_integers() -> None:
    public, private = paillier.generate(bits=256, insecure_key_size=True)
    checks = check(public, private, random=2)
    assert [one.operation for one in checks] == [*OPERATIONS, *OPERATIONS]
    assert {one.verdict for one in checks} == {"PASS"}
    assert all(one.tried == 9 for one in checks)


def test_a_wrong_result_fails_its_row_only() -> None:
    public, private = paillier.generate(bits=256, insecure_key_size=True)
    checks = check(public, Liar(private, about=35), random=0)  # 7 × 5
    failed = [one for one in checks if not one.passed]
    assert [(one.operation, one.integers, one.wrong) for one in failed] == [
        ("multiply by constant", "small, up to 10 bits", 1)
    ]
    assert failed[0].example == "7 × 5 = 36, expected 35"


def test_nothing_tried_is_nothing_passed() -> None:
    assert judge("add", "small", []).verdict == "FAIL"


def test_a_failure_is_red_and_said_at_the_top(found: Measured) -> None:
    first, *others = found.checks.items()
    spoiled = tuple(replace(one, wrong=int(place == 2)) for place, one in enumerate(first[1]))
    wrong = replace(found, checks={first[0]: spoiled, **dict(others)})
    table = tables.checks(wrong)
    assert [table.tones[row, 4] for row in range(4)] == ["good", "good", "bad", "good"]
    assert "**FAIL** in 1 of 16" in findings(wrong)[0].ours
    assert "all PASS" in findings(found)[0].ours
    correctness = reproduction(wrong, "").sections[0]
    assert getattr(correctness.parts[0], "tone", "") == "bad"


def test_a_wrong_sum_fails_the_thousand_operations(found: Measured) -> None:
    assert [row[-1] for row in tables.exercises(found).rows[1:]] == ["PASS"] * (len(found.exercises) // 2)
    first, *others = found.exercises
    table = tables.exercises(replace(found, exercises=(replace(first, wrong=2), *others)))
    assert table.rows[1][-1] == "FAIL: 2 wrong"
    assert table.tones[1, 4] == "bad"


def test_a_thousand_operations_are_scaled_and_say_so(found: Measured) -> None:
    rows = tuple(replace(row, seconds=0.001 * row.count) for row in found.exercises)
    table = tables.exercises(replace(found, exercises=rows))
    assert table.rows[0][1:3] == ("16.7 s", "17.9 s")
    assert table.rows[1][:4] == ("textbook (scaled from 2)", "1 s", "1 s", "16.7x to 17.9x")


def test_the_lab_stands_beside_the_run(found: Measured) -> None:
    encrypted = replace(found.encrypted[0], client_encrypts=0.24, sum_decrypted=0.7, epoch_seconds=3.0)
    shown = replace(found, plain=replace(found.plain, epoch_seconds=2.0), encrypted=(encrypted,))
    rows = tables.learning(shown).rows
    assert rows[1][:5] == ("the lab, encrypted", "240 s", "70 s", "1,600 s", "44.4x")
    assert rows[3][:5] == ("Tacit, shared", "240 ms", "700 ms", "3 s", "1.5x")
    said = {one.what: one for one in findings(shown)}
    assert "1,000x faster" in said["encrypting a client's update"].ours
    assert "100x faster" in said["decrypting"].ours
    assert said["an epoch, encrypted against plain"].ours == "3 s at 256 bits (1.5x); plain 2 s"


def test_one_number_a_ciphertext_is_extrapolated_to_the_update(found: Measured) -> None:
    single = tuple(replace(row, encrypt=0.5, decrypt=0.25) for row in found.one_by_one)
    shown = replace(found, one_by_one=single)
    first = next(iter(shown.steps(TINY.key_bits)))
    assert (first.by, first.encrypt, first.decrypt) == ("textbook", 0.5 * TINY.length, 0.25 * TINY.length)
    ladder = tables.ladder(shown)
    assert ladder.rows[0][-1] == "1, extrapolated"
    assert [row[-1] for row in ladder.rows if "packed" in str(row[1])] == ["all"] * len(found.packed)


def test_the_grid_has_every_operation_for_everyone(found: Measured) -> None:
    sheet = tables.grid_sheet(found)
    makers = {row[1] for row in sheet.rows}
    assert len(sheet.rows) == len(TINY.grid) * (6 + 9 * (len(makers) - 1))  # the textbook has only these
    assert all(isinstance(row[3], float) and row[3] > 0 for row in sheet.rows)


def _round(number: int, seconds: float, **stages: float) -> RoundRecord:
    return RoundRecord(
        round=number,
        attempts=1,
        train_loss=None,
        test_loss=None,
        test_accuracy=None,
        clients_expected=4.0,
        clients_asked=4,
        clients_replied=4,
        bytes_up=400,
        bytes_down=400,
        epsilon=None,
        seconds={"train": 0.0, "protect": 0.0, "aggregate": 0.0, "recover": 0.0, "evaluate": 0.5} | stages,
        wall_seconds=seconds,
    )


def test_seconds_a_client_are_those_of_its_thread_and_the_first_round_does_not_count() -> None:
    ran = run(RunConfig(data={"name": "digits"}, federate={"rounds": 1, "clients": 2}, seed=1))
    rounds = (_round(1, 1.0), _round(2, 4.5, protect=0.6, recover=0.3), _round(3, 3.5, protect=0.8, recover=0.2))
    made = summary(TINY.ways[1], replace(ran, mode="paillier", rounds=rounds), workers=2)
    assert isinstance(made, EncryptedEpoch)
    assert made.epoch_seconds == 3.0  # without evaluation
    assert made.client_encrypts == pytest.approx(0.8 * 2 / 4)
    assert made.sum_decrypted == 0.2
    assert made.client_bytes == 100
    assert not isinstance(summary(TINY.ways[0], replace(ran, rounds=rounds), workers=2), EncryptedEpoch)


def test_page_and_files(found: Measured, tmp_path: Path) -> None:
    experiment = Experiment(
        name=EXPERIMENT.name,
        title=EXPERIMENT.title,
        source=EXPERIMENT.source,
        run=lambda *_: reproduction(found, "less of everything"),
    )
    outcome = perform(experiment, Settings(quick=True, out=tmp_path))
    files.write(outcome, tmp_path)
    page = (tmp_path / "lab-paillier.html").read_text()
    for words in ("PASS", "the lab's report", "too short for use", "extrapolated", found.here.machine.processor):
        assert words in page or words.replace("'", "&#x27;") in page, words
    kept = json.loads((tmp_path / "lab-paillier.json").read_text())
    assert kept["data"]["learning"] == [asdict(epoch) for epoch in found.epochs]
    assert kept["data"]["grid"][0].keys() >= {"by", "bits", "encrypt", "exercise"}


def test_a_quick_run_says_what_is_smaller() -> None:
    assert QUICK.exercises < FULL.exercises == quoted.PAILLIER_REPEATS
    assert FULL.integers == tuple(quoted.PAILLIER_EXERCISE)
