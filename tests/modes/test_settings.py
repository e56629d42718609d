from __future__ import annotations

from typing import Any

import pytest

from tacit.config.run_config import RunConfig, from_mapping
from tacit.config.sections import Dp
from tacit.errors import ConfigError
from tacit.modes.catalogue import MODES, plan_of, resolve
from tacit.modes.settings import EPSILON, meant_for, suited

VALUES: dict[str, Any] = {
    "clip": 0.7,
    "noise": 1.0,
    "epsilon": 3.0,
    "delta": 1e-6,
    "max_epsilon": 50.0,
    "neighbours": "replace-one",
    "weight_cap": 5,
    "denoise": "james-stein",
    "per_layer": True,
    "noise_split": "variance-minimal",
    "amplification": False,
    "correlation": "toeplitz",
    "bands": 2,
    "buffers": 2,
    "mechanism": "analytic",
    "clip_start": 0.2,
    "clip_quantile": 0.4,
    "clip_rate": 0.1,
}
CORRELATED = {"correlation": "toeplitz", "bands": "banded", "buffers": "blt"}
CASES: list[tuple[str, dict[str, Any]]] = [(mode, {}) for mode in MODES] + [("paillier", {"paillier": {"dp": True}})]


def test_every_key_is_tried() -> None:
    assert set(VALUES) == set(Dp.model_fields)


@pytest.mark.parametrize(("mode", "more"), CASES, ids=lambda value: value if isinstance(value, str) else None)
@pytest.mark.parametrize("key", VALUES)
def test_a_setting_is_meant_for_the_modes_that_take_it(mode: str, more: dict[str, Any], key: str) -> None:
    kept, left = meant_for(mode, more | {"dp": {key: VALUES[key]}})
    needed: dict[str, Any] = {} if key in ("noise", "epsilon") else {"noise": 1.0}
    if mode not in ("dp", "local-dp", "dp-sgd") and not more:
        needed = {}
    if mode == "dp" and key == "noise_split":
        needed["per_layer"] = True
    if mode == "dp" and key in CORRELATED:
        needed |= {"correlation": CORRELATED[key]}
        more = more | {"federate": {"separation": 3}}
    config = from_mapping(more | {"mode": mode, "dp": needed | {key: VALUES[key]}})
    if left:
        assert left == [f"dp.{key}"]
        assert "dp" not in kept
        with pytest.raises(ConfigError):
            plan_of(resolve(config), 10)
    else:
        assert kept["dp"] == {key: VALUES[key]}
        plan_of(resolve(config), 10)


@pytest.mark.parametrize(
    ("key", "mode"),
    [
        ("signds.sign_k", "signds"),
        ("nbafl.mu", "nbafl"),
        ("paillier.bits", "paillier"),
        ("dpsgd.clip", "dp-sgd"),
    ],
)
def test_the_section_of_a_mode_is_for_that_mode_alone(key: str, mode: str) -> None:
    section, name = key.split(".")
    for other in MODES:
        kept, left = meant_for(other, {section: {name: 1}, "optimizer": {"lr": 1.0}})
        assert left == ([] if other == mode else [key])
        assert kept["optimizer"] == {"lr": 1.0}


def test_a_minimum_is_not_for_a_mode_that_releases_every_round() -> None:
    shared = {"federate": {"minimum_clients": 3, "rounds": 5}}
    assert meant_for("dp", shared) == ({"federate": {"rounds": 5}}, ["federate.minimum_clients"])
    assert meant_for("local-dp", shared) == (shared, [])


def test_the_batches_of_plain_sgd_are_not_for_dp_sgd() -> None:
    assert meant_for("dp-sgd", {"train": {"batch_size": 32}}) == ({}, ["train.batch_size"])
    assert meant_for("plain", {"train": {"batch_size": 32}}) == ({"train": {"batch_size": 32}}, [])


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(mode="dp"),
        RunConfig(mode="local-dp"),
        RunConfig(mode="dp-sgd"),
        RunConfig(mode="paillier", paillier={"dp": True}),
    ],
    ids=lambda config: config.mode,
)
def test_a_mode_without_a_budget_is_given_one_and_says_so(config: RunConfig) -> None:
    given, said = suited(config)
    assert given.dp.epsilon == EPSILON
    assert "epsilon 8 at delta 1e-05" in said[0]


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(),
        RunConfig(mode="paillier"),
        RunConfig(mode="dp", data={"name": "breast-cancer"}, dp={"noise": 1.0}),
        RunConfig(mode="dp", model={"name": "cnn"}, dp={"epsilon": 2.0}),
        RunConfig(mode="dp", data={"features": "none"}, dp={"epsilon": 2.0}),
        RunConfig(mode="dp-sgd", single_holder=True, dpsgd={"epsilon": 2.0}),
    ],
)
def test_what_was_chosen_is_left_alone(config: RunConfig) -> None:
    assert suited(config) == (config, ())


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(mode="dp"),
        RunConfig(mode="local-dp"),
        RunConfig(mode="dp-sgd"),
        RunConfig(mode="signds"),
        RunConfig(mode="paillier", paillier={"dp": True}),
    ],
    ids=lambda config: config.mode,
)
def test_a_private_mode_on_images_has_features_and_a_linear_model_and_its_plan_holds(config: RunConfig) -> None:
    full, said = suited(config)
    assert (full.data.features, full.model.name) == ("scatter", "scatter-linear")
    assert "linear model" in said[0]
    resolved = resolve(full)
    assert resolved.federate.clients is not None
    plan_of(resolved, resolved.federate.clients)
    assert suited(full) == (full, ())  # nothing is left to choose


@pytest.mark.parametrize(
    "more",
    [{"mode": "dp"}, {"mode": "signds"}, {"mode": "masks", "masks": {"dp": True}}],
    ids=lambda more: str(more["mode"]),
)
def test_few_small_images_have_a_linear_model_on_pixels_and_many_clients(more: dict[str, Any]) -> None:
    full, said = suited(RunConfig(data="digits", **more))
    assert (full.data.features, full.model.name, full.federate.clients) == ("none", "logistic", 100)
    assert "a linear model (noise is paid per parameter), 100 clients" in said[0]
    assert suited(full) == (full, ())
    assert suited(RunConfig(data="digits", model="mlp", dp={"noise": 1.0}, mode="dp"))[1] == ()


def test_what_was_set_stays_beside_what_is_chosen() -> None:
    full, said = suited(RunConfig(mode="dp", federate={"clients": 30}, dp={"epsilon": 2.0, "clip": 0.3}))
    assert (full.federate.clients, full.dp.epsilon, full.dp.clip) == (30, 2.0, 0.3)
    assert full.federate.rounds == 20
    assert "clients" not in said[0]
    assert "epsilon" not in said[0]


def test_a_deployment_has_as_many_clients_as_it_is_told() -> None:
    assert suited(RunConfig(mode="dp"), but=("federate.clients",))[0].federate.clients is None
