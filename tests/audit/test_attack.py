"""Attacks to look at: they work where nothing protects, and what protects stops them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.accounting.risk import Risk
from tacit.audit import membership, views
from tacit.audit.inversion import paired, scored, similarity
from tacit.audit.reconstruction import scene
from tacit.cli.main import app
from tacit.errors import ConfigError, RunError
from tacit.federated.plan import Privacy
from tacit.modes.catalogue import MODES
from tacit.report.page import Page, Pictures, Section
from tacit.runs.folder import JOURNAL, RESULT
from tacit.runs.run import run
from tacit.tasks.pictures import scale_of
from tests.runs.common import digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("attacked") / "run"
    run(digits(model={"name": "mlp"}, mode="dp", dp={"epsilon": 8.0}, out=out), quiet=True)
    return out


def test_one_image_is_read_off_an_update_and_not_off_a_protected_one(folder: Path) -> None:
    found = {(one.mode, one.who): one.score for one in scene(folder, batch=1, seed=1).attempts(steps=1)}
    assert found.keys() >= {(mode, "the server") for mode in MODES}
    assert found["plain", "the server"].ssim > 0.99
    assert found["dp", "the server"].matched == 1.0  # it is trusted: a clip hides nothing from it
    for mode, who in (("dp", "whoever has the models"), ("local-dp", "the server"), ("masks", "the server")):
        assert found[mode, who].matched == 0.0
    assert found["paillier", "the key authority"].ssim < 0.9


def test_several_images_are_looked_for(folder: Path) -> None:
    shown = scene(folder, batch=2, seed=1)
    plain, hidden = shown.attempts(["plain", "local-dp"], steps=300)
    assert plain.score.psnr > 15.0 > 13.0 > hidden.score.psnr
    assert plain.found.shape == (2, 8, 8)


def test_a_ciphertext_says_nothing_of_the_update(folder: Path) -> None:
    shown = scene(folder, batch=1, seed=1)
    examples = shown.data.train.take(shown.rows)
    seen = views.views("masks", data=examples, module=shown.module, batch=1, epsilon=8.0, seed=1)
    (own,) = views.views("plain", data=examples, module=shown.module, batch=1, epsilon=8.0, seed=1)
    assert abs(np.corrcoef(seen[0].vector, own.vector)[0, 1]) < 0.05


def test_scores_know_the_same_image_and_another() -> None:
    generator = np.random.default_rng(1)
    images, others = generator.random((3, 8, 8)), generator.random((50, 8, 8))
    same = scored(images, paired(images, images[[2, 0, 1]]), others)
    assert same.matched == 1.0
    assert same.ssim == pytest.approx(1.0)
    assert scored(images, 1.0 - images, others).matched == 0.0
    assert similarity(images[0], images[1]) < 0.5


def test_features_become_pixels_again() -> None:
    scale = scale_of("digits")
    raw = np.arange(64.0).reshape(1, 64) / 63.0
    assert scale.pixels((raw - scale.centre) / scale.deviation).ravel() == pytest.approx(raw.ravel())
    with pytest.raises(ConfigError, match="grey images"):
        scale_of("heart-disease")


def test_members_of_a_model_that_remembers_are_found() -> None:
    """Confidences as LiRA sees them: of members one deviation higher than shadows without them have."""
    generator = np.random.default_rng(1)
    hardness = generator.normal(0.0, 3.0, 800)
    shadows = hardness + generator.normal(0.0, 1.0, (8, 800))
    shadows[generator.random((8, 800)) < 0.5] = np.nan
    own = hardness + generator.normal(0.0, 1.0, 800) + np.repeat([1.5, 0.0], 400)
    scores = membership._scores(own, shadows)
    claim = Privacy(
        epsilon=1.0, delta=1e-5, unit="client", neighbours="add-remove", accountant="", against="", gaussian_mu=0.5
    )
    found = membership._curve(scores[:400], scores[400:], 8, claim)
    assert found.area > 0.75
    assert found.at[1] > 0.03
    assert found.allowed is not None
    mu = Risk(epsilon=math.inf, delta=1.0, right_guesses=1.0, mu=1.0)
    assert found.allowed == pytest.approx([mu.power(rate) for rate in membership.RATES], abs=1e-6)
    assert list(found.found) == sorted(found.found)


def test_a_run_is_attacked_for_members(folder: Path) -> None:
    found = membership.membership(folder, shadows=2, seed=1, told=lambda _: None)
    assert 0.3 < found.area < 0.7
    assert found.curve is not None
    with pytest.raises(ConfigError, match="2 shadow runs"):
        membership.membership(folder, shadows=1, seed=1, told=lambda _: None)


def test_what_is_no_run_and_a_run_that_is_not_finished_are_refused_in_their_own_words(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match="is not the folder of a run"):
        membership.membership(tmp_path / "nowhere", shadows=2, seed=1, told=print)
    begun = tmp_path / "begun"
    shutil.copytree(folder, begun)
    lines = (begun / JOURNAL).read_text().splitlines(keepends=True)
    (begun / JOURNAL).write_text("".join(lines[:3]))
    (begun / RESULT).unlink()
    with pytest.raises(RunError, match=r"is not finished\. Go on with it by `tacit resume"):
        membership.membership(begun, shadows=2, seed=1, told=print)


def test_the_command_writes_a_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ["attack", str(folder), "--gradient-inversion", "--images", "1", "--json", "--out", str(page)]
    told = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)
    assert {view["mode"] for view in told["views"]} == set(MODES)
    assert page.read_text().count("<img ") == 2 * len(told["views"])
    with pytest.raises(ConfigError, match="one of them"):
        CliRunner().invoke(app, ["attack", str(folder)], catch_exceptions=False)
    with pytest.raises(ConfigError, match="1 to 16 images"):
        scene(folder, batch=17, seed=1)


def test_pictures_are_inside_the_page() -> None:
    html = Page(title="a", sections=[Section(title="b", parts=[Pictures(rows={"c": [[[0.0, 1.0]]]})])]).html()
    assert 'src="data:image/png;base64,iVBORw0KGgo' in html
