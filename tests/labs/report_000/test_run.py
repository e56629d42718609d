"""Report 000 with keys that are far too short and data that are learned at once, so that it takes seconds."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tacit.config.run_config import from_mapping
from tacit.crypto import paillier
from tacit.crypto.paillier import Ciphertext, PrivateKey
from tacit.modes.catalogue import resolve
from tacit.report.page import Bars, Lines, Surface
from tacit.studies.plan import with_values
from tacit_labs.harness import files
from tacit_labs.harness.checks import judge
from tacit_labs.harness.encrypted import WAYS, EncryptedEpoch, Epoch, Way
from tacit_labs.harness.epsilons import coded, composed
from tacit_labs.harness.experiment import Reproduction, Settings, silent
from tacit_labs.harness.paillier_jobs import MODES
from tacit_labs.harness.record import perform
from tacit_labs.report_000 import mechanisms, page_paillier, page_private, panels, private, quoted
from tacit_labs.report_000 import run as report
from tacit_labs.report_000.checks import OPERATIONS, check
from tests.labs.common import charts, tables

PRIVATE = private.Sizes(
    data="digits",
    model="logistic",
    tensors=2,
    rounds=2,
    clients=3,
    clips=(0.1, 0.5),
    sigmas=(0.1, 0.4),
    workers=1,
)
TINY = report.Sizes(
    private=PRIVATE,
    panels=panels.Sizes(
        key_bits=256, lengths=(10, 100, 120), settled=2, around=(100, 200, 210), update_keys=(256,), sample=1, length=50
    ),
    random=1,
    safe_bits=384,
    ways=(Way(name="plain"), Way(name="shared", key_bits=256, shared=True), Way(name="apart", key_bits=384)),
    rounds=2,
    clients=2,
    data={"name": "digits"},
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    return report.reproduce(TINY, Settings(quick=True, out=tmp_path_factory.mktemp("lab")), silent)


def test_the_settings_are_the_reports() -> None:
    full = report.FULL
    assert (full.private.rounds, full.private.grid_rounds) == (6, 2)
    assert (min(full.private.clips), max(full.private.clips)) == (0.1, 0.9)
    assert (min(full.private.sigmas), max(full.private.sigmas)) == (0.1, 0.4)
    assert (full.private.clients, full.private.local_epochs) == (full.clients, full.local_epochs) == (5, 3)
    assert (full.panels.key_bits, full.panels.experiments) == (1024, 3)
    assert full.panels.lengths == tuple(range(10, 1010, 10))


def test_the_command_on_the_page_is_the_run_as_meant() -> None:
    words = page_private.AS_MEANT.split()
    assert words[:4] == ["tacit", "run", "--mode", "dp"]
    assert words[4:8] == ["--C", f"{quoted.CLIP:g}", "--sigma", f"{quoted.SIGMA:g}"]
    named = {"mode": "dp", "dp.clip": quoted.CLIP, "dp.noise": quoted.SIGMA}
    typed = with_values({}, named | {key: yaml.safe_load(value) for key, value in (w.split("=") for w in words[8:])})
    base = private._base(private.Sizes(), Settings())
    meant = with_values(
        base, private.noise(private.MEANT, clip=quoted.CLIP, sigma=quoted.SIGMA, tensors=private.TENSORS)
    )
    assert resolve(from_mapping(typed)).model_copy(update={"seed": 1}) == resolve(from_mapping(meant))


def test_the_three_curves_have_the_noise_that_they_say(made: Reproduction) -> None:
    curves = made.data["private"]["curves"]
    assert curves["plain"]["epsilon"] == [None, None]
    assert curves["meant"]["epsilon"] == pytest.approx([composed(0.05, 1), composed(0.05, 2)])
    both = [coded(0.05, 0.5, tensors=2, rounds=rounds) for rounds in (1, 2)]
    assert curves["coded"]["epsilon"] == pytest.approx(both)


def test_accuracy_and_loss_on_both_kinds_of_data_are_there_for_every_round(made: Reproduction) -> None:
    for curve in made.data["private"]["curves"].values():
        for measure in ("train_accuracy", "test_accuracy", "train_data_loss", "test_loss"):
            assert len(curve[measure]) == 2
            assert all(isinstance(value, float) for value in curve[measure])
    for title in ("DP learning curve", "Paillier learning curve"):
        drawn = [chart.title for chart in charts(made, title)]
        assert drawn[:4] == ["Training accuracy", "Test accuracy", "Training loss", "Test loss"]


@pytest.mark.parametrize("kind", ["coded", "meant"])
def test_every_point_of_a_grid_is_on_the_surfaces_in_its_place(made: Reproduction, kind: str) -> None:
    grid = made.data["private"]["grids"][kind]
    drawings = [chart.panels[0].drawing for chart in charts(made, f"C and sigma, noise as {kind}")]
    train, test = (drawing.z for drawing in drawings if isinstance(drawing, Surface))
    assert len(grid) == 4
    for point in grid:
        down, across = PRIVATE.sigmas.index(point["sigma"]), PRIVATE.clips.index(point["clip"])
        assert train[down][across] == point["train_accuracy"]
        assert test[down][across] == point["test_accuracy"]
    first = tables(made, f"C and sigma, noise as {kind}")[0]
    best = max(point["test_accuracy"] for point in grid)
    ((row, column),) = first.tones
    assert first.rows[row][column] == f"{100 * best:.2f}% (best)"


def test_the_reports_surfaces_are_transposed_as_the_page_says() -> None:
    clips, sigmas = np.meshgrid(quoted.CLIPS, quoted.SIGMAS)  # the axes that dp_tune.py hands to plot_surface
    for row, clip in enumerate(quoted.CLIPS):  # whose heights have a row for each C
        for column, sigma in enumerate(quoted.SIGMAS):
            drawn_at = clips[row, column], sigmas[row, column]
            assert drawn_at == (quoted.CLIPS[quoted.SIGMAS.index(sigma)], quoted.SIGMAS[quoted.CLIPS.index(clip)])


def test_the_noise_as_coded_has_the_variance_for_its_deviation() -> None:
    made = private.noise(private.CODED, clip=0.5, sigma=0.05, tensors=8)
    assert made["dp.clip"] * made["dp.noise"] == pytest.approx((0.05 * 0.5) ** 2)
    assert made["dp.clip"] / math.sqrt(8) == pytest.approx(0.5)  # of each tensor
    assert private.noise(private.MEANT, clip=0.5, sigma=0.05, tensors=8) == {"dp.clip": 0.5, "dp.noise": 0.05}


def test_nine_panels_of_three_rows_and_columns(made: Reproduction) -> None:
    first, second = charts(made, "The nine panels")
    names = [panel.title for panel in first.panels]
    assert (len(names), first.across) == (9, 3)
    assert names[:4] == ["enc_add, encryption", "enc_add, decryption", "enc_add, total", "enc_add_const, encryption"]
    drawings = [panel.drawing for panel in first.panels]
    assert all(isinstance(drawing, Lines) and len(drawing.series) == 3 for drawing in drawings)  # three experiments
    assert len(second.panels) == 9


def test_a_panels_total_is_encryption_and_decryption() -> None:
    seconds = {mode: {"encryption": [1.0, 2.0], "decryption": [0.5, 0.25]} for mode in MODES}
    row = panels.Panels(by="native", key_bits=256, lengths=[10, 20], experiment=1, seconds=seconds, wrong=0)
    assert row.column("enc_add", "total") == [1.5, 2.25]
    found = panels.timed(TINY.panels, [row], {})
    assert found.growth("native", "enc_add", "encryption") == 2.0


def test_results_in_the_panels_are_right(made: Reproduction) -> None:
    assert {row["wrong"] for row in made.data["paillier"]["panels"]} == {0}
    assert {row["by"] for row in made.data["paillier"]["panels"]} >= {"textbook, gmpy2", "textbook, Python"}


def test_the_bonus_says_where_the_classical_mechanism_ends() -> None:
    found = mechanisms.compute()
    assert found.classical_until == pytest.approx(7.4635, abs=1e-4)
    assert found.denoised.james_stein < found.denoised.raw
    assert found.heterogeneous[1] < found.heterogeneous[0]


def test_quotations_stand_beside_ours(made: Reproduction) -> None:
    said = {one.what: one for one in made.findings}
    assert any("near 96%" in one.original for one in made.findings)
    assert said["An epoch, encrypted against plain"].original.startswith('"near 1600s" against "near 36 seconds"')
    assert sum(one.headline for one in made.findings) >= 8


class Liar:
    """Decrypts, and is wrong about one number."""

    def __init__(self, private_key: PrivateKey, about: int) -> None:
        self._private = private_key
        self._about = about

    def decrypt(self, ciphertext: Ciphertext) -> int:
        number = self._private.decrypt(ciphertext)
        return number + 1 if number == self._about else number


def test_all_operations_pass_on_small_and_large_integers() -> None:
    public, secret = paillier.generate(bits=256, insecure_key_size=True)
    checks = check(public, secret, random=2)
    assert [one.operation for one in checks] == [*OPERATIONS, *OPERATIONS]
    assert {one.verdict for one in checks} == {"PASS"}
    assert all(one.tried == 9 for one in checks)


def test_a_wrong_result_fails_its_row_only() -> None:
    public, secret = paillier.generate(bits=256, insecure_key_size=True)
    checks = check(public, Liar(secret, about=35), random=0)  # 7 × 5
    failed = [one for one in checks if not one.passed]
    assert [(one.operation, one.integers, one.wrong) for one in failed] == [
        ("multiply by constant", "small, up to 10 bits", 1)
    ]
    assert failed[0].example == "7 × 5 = 36, expected 35"


def test_nothing_tried_is_nothing_passed() -> None:
    assert judge("add", "small", []).verdict == "FAIL"


def test_a_smaller_run_says_so_and_the_full_one_does_not(made: Reproduction) -> None:
    assert "grids of 2 x 2 points instead of 4 x 4" in made.smaller
    assert report._smaller(report.FULL) == ""


def test_what_is_not_in_the_report_is_said_to_be_from_elsewhere(made: Reproduction) -> None:
    assert f"is from its author's public code (`{quoted.REPOSITORY}`)" in made.settings


def test_page_and_files(made: Reproduction, tmp_path: Path) -> None:
    experiment = replace(report.EXPERIMENT, run=lambda _settings, _progress: made)
    html, data, *sheets = files.write(perform(experiment, Settings(quick=True, out=tmp_path)), tmp_path)
    text = html.read_text()
    for words in (quoted.DOCUMENT, "too short for use", "extrapolated", "near 96%"):
        assert words in text, words
    assert "report-000-nine-panels.csv" in [path.name for path in sheets]
    kept = json.loads(data.read_text())
    assert len(kept["data"]["learning"]) == 3


def test_one_that_was_stopped_goes_on(tmp_path: Path) -> None:
    def stop(what: str, *, done: float | None = None, total: float | None = None) -> None:
        if what.startswith("grid, noise as meant"):
            raise KeyboardInterrupt

    folder, settings = tmp_path / "kept", Settings(quick=True, out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        private.measure(PRIVATE, settings, folder, stop)
    results = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert len(results) == 3 + 4
    private.measure(PRIVATE, settings, folder, silent)
    assert {path: path.stat().st_mtime_ns for path in results} == results  # none was made again


def test_every_bar_of_the_stages_has_a_look_of_its_own() -> None:
    shared: dict[str, Any] = {"parameters": 1, "clients": 2, "rounds": 1, "epoch_seconds": 2.0, "train_seconds": 1.0}
    shared |= {"sum_added": 0.1, "client_bytes": 9.0, "test_accuracy": 0.5, "curve": {}}
    plain, *encrypted = WAYS
    epochs = [Epoch(way=plain.name, **shared)]
    for way in encrypted:
        stage: dict[str, Any] = {
            "key_bits": way.key_bits,
            "shared": way.shared,
            "client_encrypts": 1.0,
            "sum_decrypted": 1.0,
        }
        epochs.append(EncryptedEpoch(way=way.name, **shared, **stage))
    drawing = page_paillier._stages(epochs).panels[0].drawing
    assert isinstance(drawing, Bars)
    looks = [one.style for one in drawing.series]
    assert len(set(looks)) == len(looks) == 4
