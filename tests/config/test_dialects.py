from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.config import overrides
from tacit.config.dialects import translated
from tacit.config.run_config import from_mapping
from tacit.errors import ConfigError

MINDSPORE = """
encrypt:
  encrypt_train_type: SIGNDS
  pw_encrypt:
    share_secrets_ratio: 1.0
    cipher_time_window: 300000
    reconstruct_secrets_threshold: 0
  dp_encrypt:
    dp_eps: 50.0
    dp_delta: 0.01
    dp_norm_clip: 1.0
  signds:
    sign_k: 0.2
    sign_eps: 100
    sign_thr_ratio: 0.6
    sign_global_lr: 0.1
    sign_dim_out: 0
"""


@pytest.mark.parametrize(
    ("section", "name"), [("data", "digits"), ("model", "mlp"), ("optimizer", "adam"), ("server", "fedadam")]
)
def test_a_section_may_be_given_by_its_name_alone(section: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"{section}: {name}")
    config = from_mapping(overrides.parse([str(tmp_path / "job.yaml")]))
    assert getattr(config, section).name == name


def test_mindspores_block_is_understood_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(MINDSPORE)
    config = from_mapping(overrides.parse([str(tmp_path / "job.yaml"), "signds.sign_eps=8"]))
    assert config.mode == "signds"
    signds = config.signds
    assert (signds.sign_k, signds.sign_eps, signds.sign_thr_ratio) == (0.2, 8.0, 0.6)  # the command line wins
    assert (signds.sign_global_lr, signds.sign_dim_out) == (0.1, 0)
    assert from_mapping(overrides.parse([str(tmp_path / "job.yaml"), "encrypt.signds.sign_k=0.1"])).signds.sign_k == 0.1


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({"encrypt": {"encrypt_train_type": "NOT_ENCRYPT", "signds": {"sign_k": 9}}}, "plain"),
        ({"encrypt": {"encrypt_type": "signds"}}, "signds"),
        ({"encrypt": {"encrypt_train_type": "SIGNDS", "signds": None}}, "signds"),
        ({"mode": "SignDS", "encrypt": {"encrypt_train_type": "SIGNDS"}}, "signds"),
        ({"nbafl": {"use": True, "mu": 0.1}}, "nbafl"),
        ({"nbafl": {"use": False}}, "plain"),
    ],
)
def test_switches_choose_the_mode(values: dict[str, Any], mode: str) -> None:
    assert from_mapping(values).mode == mode


def test_federatedscopes_words() -> None:
    words = ["nbafl.use", "True", "nbafl.mu", "0.01", "nbafl.constant", "1.", "nbafl.w_clip=0.1", "nbafl.epsilon=10"]
    config = from_mapping(overrides.parse(words))
    nbafl = config.nbafl
    assert (config.mode, nbafl.mu, nbafl.constant, nbafl.w_clip, nbafl.epsilon) == ("nbafl", 0.01, 1.0, 0.1, 10.0)
    assert nbafl.compat == from_mapping({"nbafl": {"use": True}}).nbafl.compat == "federatedscope"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"encrypt": {"encrypt_train_type": "DP_ENCRYPT"}}, "DP_ENCRYPT is not understood.*--mode local-dp"),
        ({"encrypt": "SIGNDS"}, "Expected encrypt: {encrypt_train_type: SIGNDS"),
        ({"encrypt": {"encrypt_train_type": "SIGNDS", "signs": {}}}, "Unknown key 'encrypt.signs'"),
        ({"encrypt": {"encrypt_train_type": "SIGNDS", "signds": 3}}, "Expected encrypt.signds to be a section"),
        ({"mode": "dp", "encrypt": {"encrypt_train_type": "SIGNDS"}}, "chooses mode 'signds', and mode=dp another"),
        ({"encrypt": {"encrypt_train_type": "SIGNDS", "signds": {"sign_q": 1}}}, "Unknown key 'signds.sign_q'"),
        ({"mode": "plain", "nbafl": {"use": True}}, "nbafl.use=true chooses mode 'nbafl'"),
        ({"nbafl": {"use": "perhaps"}}, "expected true or false"),
    ],
)
def test_mistakes(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_mapping(values)


def test_other_settings_are_left_alone() -> None:
    assert translated({"mode": "dp", "seed": 3}) == {"mode": "dp", "seed": 3}
