"""FederatedScope's settings, as its documentation and its example on FEMNIST have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.config import federatedscope, overrides
from tacit.config.run_config import RunConfig, from_mapping, known_keys
from tacit.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "examples" / "nbafl-femnist" / "fedavg_convnet2_on_femnist.yaml"
COMMAND = ["nbafl.mu", "0.01", "nbafl.constant", "1", "nbafl.w_clip", "0.1", "nbafl.epsilon", "10"]


def config(*words: str) -> RunConfig:
    return from_mapping(overrides.parse(words))


def test_the_documents_command_is_federatedscopes_algorithm_with_its_settings() -> None:
    read = overrides.read([str(EXAMPLE), *COMMAND])
    asked = from_mapping(read.settings)
    assert (asked.mode, asked.nbafl.compat) == ("nbafl", "federatedscope")
    nbafl = asked.nbafl
    assert (nbafl.mu, nbafl.constant, nbafl.w_clip, nbafl.epsilon) == (0.01, 1.0, 0.1, 10.0)
    assert (asked.data.name, asked.model.name) == ("femnist", "convnet2")
    assert (asked.federate.rounds, asked.federate.share, asked.federate.clients) == (300, 0.2, None)
    assert (asked.train.local_epochs, asked.train.batch_size, asked.evaluate.every) == (1, 10, 10)
    assert (asked.optimizer.name, asked.optimizer.lr, asked.optimizer.grad_clip) == ("sgd", 0.01, 5.0)
    effective, without, chosen = read.remarks
    assert effective.count("federate.total_round_num is federate.rounds=300") == 1
    assert "data.subsample=0.05 (all owners whose files are there take part" in without
    assert "nbafl.compat=federatedscope, of which no epsilon holds" in chosen


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["federate.client_num", "7"], "federate.clients", 7),
        (["federate.total_round_num=9"], "federate.rounds", 9),
        (["federate.sample_client_num", "3"], "federate.per_round", 3),
        (["federate.ignore_weight", "True"], "federate.weighting", "uniform"),
        (["optimizer.type", "SGD"], "optimizer.name", "sgd"),
        (["train.optimizer.type=Adam"], "optimizer.name", "adam"),
        (["train.optimizer.lr=0.3"], "optimizer.lr", 0.3),
        (["train.local_update_steps", "4"], "train.local_epochs", 4),
        (["dataloader.batch_size", "64"], "train.batch_size", 64),
        (["optimizer.grad_clip=-1.0"], "optimizer.grad_clip", None),
        (["grad.grad_clip=0"], "optimizer.grad_clip", None),
        (["grad.grad_clip", "5.0"], "optimizer.grad_clip", 5.0),
        (["model.type", "lr"], "model.name", "logistic"),
        (["early_stop.patience", "5"], "evaluate.patience", 5),
        (["early_stop.patience", "0"], "evaluate.patience", None),
        (["eval.metrics=[acc, f1, roc_auc]"], "evaluate.metrics", ("f1", "auc")),
        (["outdir", "there"], "out", Path("there")),
        (["device", "1"], "gpu", 1),
        (["device", "1", "use_gpu", "True"], "gpu", 1),
        (["use_gpu", "True"], "gpu", 0),
        (["device", "1", "use_gpu", "False"], "gpu", -1),
        (["fedprox.mu", "0.5"], "optimizer.mu", 0.5),
    ],
)
def test_a_key_in_effect(words: list[str], key: str, value: Any) -> None:
    read = overrides.read(words)
    section, _, name = key.partition(".")
    found = getattr(from_mapping(read.settings), section)
    assert (getattr(found, name) if name else found) == value
    assert read.remarks


def test_the_later_word_wins_in_whichever_words(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    theirs.write_text("federate: {total_round_num: 300}\n")
    ours.write_text("federate: {rounds: 20}\n")
    assert config(str(theirs), "federate.rounds=5").federate.rounds == 5
    assert config(str(ours), "federate.total_round_num", "6").federate.rounds == 6
    assert config("federate.total_round_num=6", str(ours)).federate.rounds == 20
    assert config(str(theirs), "federate.total_round_num=7").federate.rounds == 7
    said = overrides.read([str(theirs), "federate.total_round_num=7"]).remarks
    assert said == ("In FederatedScope's words: federate.total_round_num is federate.rounds=7.",)


def test_a_clip_that_is_on_is_ours_and_nothing_is_said() -> None:
    read = overrides.read(["optimizer.grad_clip=5.0", "seed=3", "nbafl.mu=0.1"])
    assert read == overrides.Read(settings={"optimizer": {"grad_clip": 5.0}, "seed": 3, "nbafl": {"mu": 0.1}})


@pytest.mark.parametrize(
    ("words", "mode", "compat"),
    [
        (["federate.client_num=5", "nbafl.mu=0.1"], "nbafl", "federatedscope"),
        (["nbafl.use=True"], "nbafl", "federatedscope"),
        (["nbafl.use=True", "nbafl.compat=paper"], "nbafl", "paper"),
        (["nbafl.use=False", "nbafl.mu=0.1", "federate.client_num=5"], "plain", "paper"),
        (["federate.client_num=5", "mode=dp", "nbafl.mu=0.1"], "dp", "paper"),
        (["federate.client_num=5"], "plain", "paper"),
        (["mode=nbafl", "nbafl.mu=0.1"], "nbafl", "paper"),  # our words, our default
    ],
)
def test_its_algorithm_is_chosen_by_its_words_alone(words: list[str], mode: str, compat: str) -> None:
    found = config(*words)
    assert (found.mode, found.nbafl.compat) == (mode, compat)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["federate.totl_round_num=3"], "Did you mean 'federate.total_round_num'"),
        (["eval.freqs=3"], "Unknown key 'eval.freqs'. Did you mean 'eval.freq'"),
        (
            ["federate.mode=distributed"],
            "federate.mode=distributed does not work here: .*engine=flower",
        ),
        (["train.batch_or_epoch=batch"], "expected epoch. .*train.local_epochs"),
        (
            ["federate.method=ditto"],
            "FederatedScope's federate.method=ditto does not work here: expected one of",
        ),
        (["model.type=vgg11"], "expected one of convnet2"),
        (["model.hidden=512"], "model.hidden=512 does not work here: expected 2048. Bring a model of your own"),
        (["criterion.type=MSELoss"], "expected crossentropyloss"),
        (["use_gpu=perhaps"], "use_gpu=perhaps does not work here: expected true or false"),
        (["eval.metrics=[hits@1]"], "expected a list of acc"),
        (["federate.ignore_weight=3"], "expected true or false"),
        (["grad.grad_clip=[1]"], r"optimizer.grad_clip=\[1\] does not work"),
        (["federate.total_round_num=-4"], "federate.rounds=-4 does not work"),
        (["federate.total_round_num"], "has no value"),
    ],
)
def test_what_means_something_else_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(*words)


def test_no_key_of_ours_is_taken_for_one_of_theirs_but_the_clip() -> None:
    assert set(known_keys()) & federatedscope.KEYS.keys() == {"optimizer.grad_clip"}
