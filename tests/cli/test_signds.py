from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_run import SMALL, Tacit


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tacit:
    monkeypatch.setenv("COLUMNS", "200")
    return Tacit(monkeypatch, capfd)


def test_the_plan_in_json(run: Tacit) -> None:
    words = ("signds", "plan", "--dim", "66404", "--k", "0.2", "--eps", "100", "--ratio", "0.6", "--json")
    status, out, err = run(*words)
    assert (status, err) == (0, "")
    plan = json.loads(out)
    assert (plan["output_dimensions"], plan["threshold"], plan["bytes"]) == (176, 118, 220)
    assert plan["expected_hits"] == pytest.approx(117.87422091043825)
    assert plan["epsilon_per_round"] == 105.0
    assert plan["bytes_with_header"] == 228
    assert plan["guarantee"] is False
    assert 0 < plan["suggestion"]["epsilon"] <= 8.0


def test_the_plan_in_words_says_that_it_is_no_guarantee_and_what_is(run: Tacit) -> None:
    status, out, _ = run("signds", "plan", "--dim", "66404", "--k", "0.2", "--rounds", "600")
    assert status == 0
    assert "176 of 66,404 coordinates" in out
    assert "epsilon 63,000 at delta 1e-05 after 600 rounds" in out
    assert "This is no guarantee" in out
    assert "A guarantee of epsilon" in out
    assert "signds.sign_eps=" in out
    assert "signds.step=fixed" in out


def test_a_plan_that_is_a_guarantee_is_left_in_peace(run: Tacit) -> None:
    status, out, _ = run("signds", "plan", "--dim", "200", "--k", "0.2", "--eps", "1", "--rr-eps", "0.1")
    assert status == 0
    assert "no guarantee" not in out
    assert "signds.sign_k=0.2 of 200 coordinates is 40: expected more than 50" in out


def test_a_suggestion(run: Tacit) -> None:
    status, out, _ = run("signds", "suggest", "--dim", "21840", "--epsilon", "4", "--rounds", "10", "--json")
    assert status == 0
    assert 3.8 < json.loads(out)["epsilon"] <= 4.0
    _, out, _ = run("signds", "suggest", "--dim", "21840", "--epsilon", "2", "--rounds", "50", "--shuffled", "500")
    assert "tacit run --mode signds signds.sign_k=" in out
    assert "trusted shuffler that mixes 500" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--k", "0.3"), "sign_k=0.3 is outside its domain: expected a number in (0, 0.25]"),
        (("--eps", "101"), "sign_eps=101.0 is outside its domain: expected a number in (0, 100]"),
        (("--ratio", "0.4"), "sign_thr_ratio=0.4 is outside its domain: expected a number in [0.5, 1]"),
        (("--out", "51"), "sign_dim_out=51 is outside its domain: expected a number in [0, 50]"),
        (("--rr-eps", "-1"), "rr_eps=-1.0 is outside its domain"),
        (("--delta", "2"), "delta strictly between 0 and 1"),
    ],
)
def test_mistakes(run: Tacit, words: tuple[str, str], message: str) -> None:
    assert message in run.refused("signds", "plan", "--dim", "1000", *words)


def test_runs_of_both_modes_in_their_own_words(run: Tacit, tmp_path: Path) -> None:
    words = ["signds.sign_k=0.2", "signds.sign_eps=100", "signds.sign_thr_ratio=0.6", "signds.sign_global_lr=4"]
    status, out, _ = run("run", "--mode", "signds", *words, *SMALL, "--out", tmp_path / "a", "--json")
    assert status == 0
    assert json.loads(out)["privacy"]["epsilon"] == 210.0
    words = ["nbafl.mu", "0.01", "nbafl.constant=1", "nbafl.w_clip", "0.1", "nbafl.epsilon=10"]
    status, out, _ = run("run", "--mode", "nbafl", *words, *SMALL, "--out", tmp_path / "b", "--json")
    assert status == 0
    assert json.loads(out)["privacy"]["nominal_epsilon"] == 10.0
    (tmp_path / "job.yaml").write_text(
        "encrypt: {encrypt_train_type: SIGNDS, signds: {sign_k: 0.2, sign_eps: 100, sign_thr_ratio: 0.6}}"
    )
    status, out, _ = run("run", tmp_path / "job.yaml", *SMALL, "--out", tmp_path / "c", "--json")
    assert status == 0
    assert json.loads(out)["mode"] == "signds"


def test_federatedscopes_command_as_it_is_printed(run: Tacit, tmp_path: Path) -> None:
    """And a number below zero is no flag."""
    (tmp_path / "fedavg.yaml").write_text(
        "federate: {mode: standalone, client_num: 5, total_round_num: 300}\n"
        "data: {type: digits, num_workers: 0}\nmodel: {type: lr}\noptimizer: {type: SGD, lr: 0.1}\n"
    )
    words = ["nbafl.mu", "0.01", "nbafl.constant", "1", "nbafl.w_clip", "0.1", "nbafl.epsilon", "10"]
    words += ["optimizer.grad_clip", "-1.0", "--rounds", "2", "--seed", "1", "--json"]
    status, out, said = run("run", "--cfg", tmp_path / "fedavg.yaml", *words, "--out", tmp_path / "a")
    assert status == 0
    found = json.loads(out)
    assert (found["mode"], len(found["rounds"])) == ("nbafl", 2)
    assert (found["privacy"]["epsilon"], found["privacy"]["nominal_epsilon"]) == ("infinite", 10.0)
    assert said.count("federate.client_num is federate.clients=5") == 1
    assert "optimizer.grad_clip=-1.0 is optimizer.grad_clip=null" in said
    assert "without effect here: federate.mode=standalone" in said
