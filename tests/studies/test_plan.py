from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.config.sections import Federate
from tacit.errors import ConfigError
from tacit.modes.settings import EPSILON
from tacit.studies.plan import Axis, Order, of_modes, order_of, parse_axes

BASE: dict[str, Any] = {"data": {"name": "breast-cancer"}, "federate": {"rounds": 3, "clients": 4}}


def settings(order: Order, mode: str) -> dict[str, Any]:
    return dict(next(run.settings for run in of_modes(order).runs if run.values["mode"] == mode))


def test_every_mode_gets_every_seed_and_the_same_settings() -> None:
    planned = of_modes(Order(modes=("plain", "paillier"), seeds=2, shared=BASE))
    assert [run.name for run in planned.runs] == [
        *("plain-seed-1", "plain-seed-2", "paillier-seed-1", "paillier-seed-2"),
    ]
    assert planned.entries() == {"plain": [0, 1], "paillier": [2, 3]}
    for run in planned.runs:
        assert run.settings == BASE | {"mode": run.values["mode"], "seed": run.seed}
        assert run.rounds == 3


def test_rounds_are_the_same_also_where_none_are_given() -> None:
    shared = {"data": {"name": "breast-cancer"}}
    alone = [of_modes(Order(modes=(mode,), shared=shared)).runs[0].rounds for mode in ("plain", "dp-sgd")]
    both = of_modes(Order(modes=("plain", "dp-sgd"), shared=shared))
    assert [run.rounds for run in both.runs] == [max(alone)] * 2
    assert [run.settings["federate"]["rounds"] for run in both.runs] == [max(alone)] * 2
    assert alone[0] == Federate().rounds


def test_seeds_follow_the_one_that_is_given() -> None:
    planned = of_modes(Order(modes=("plain",), seeds=2, shared=BASE | {"seed": 7}))
    assert [run.seed for run in planned.runs] == [7, 8]


def test_modes_that_need_a_budget_get_one_and_it_is_said() -> None:
    order = Order(modes=("plain", "dp", "local-dp", "dp-sgd", "paillier", "signds"), shared=BASE)
    for mode in ("dp", "local-dp", "dp-sgd"):
        assert settings(order, mode)["dp"] == {"epsilon": EPSILON}
    for mode in ("plain", "paillier", "signds"):
        assert "dp" not in settings(order, mode)
    told, signds, _ = of_modes(order).notes
    assert told.startswith("dp, local-dp, dp-sgd: dp.epsilon=8, because neither")
    assert "signds.sign_eps" in signds


@pytest.mark.parametrize(
    ("more", "mode", "expected"),
    [
        ({"dp": {"epsilon": 3.0}}, "dp", {"epsilon": 3.0}),
        ({"dp": {"noise": 1.0}}, "local-dp", {"noise": 1.0}),
        ({"dpsgd": {"noise": 1.0}}, "dp-sgd", None),
        ({"paillier": {"dp": True}}, "paillier", {"epsilon": EPSILON}),
        ({"paillier": {"dp": True}, "dp": {"noise": 9.0}}, "paillier", {"noise": 9.0}),
    ],
)
def test_a_budget_that_is_given_is_kept(more: dict[str, Any], mode: str, expected: Any) -> None:
    assert settings(Order(modes=(mode,), shared=BASE | more), mode).get("dp") == expected


def test_shared_settings_go_where_they_mean_something() -> None:
    order = Order(
        modes=("plain", "dp", "signds"),
        shared=BASE | {"dp": {"epsilon": 2.0, "delta": 1e-6}, "signds": {"sign_k": 0.2}, "nbafl": {"mu": 1.0}},
    )
    assert settings(order, "plain").keys() == {"data", "federate", "mode", "seed"}
    assert settings(order, "dp")["dp"] == {"epsilon": 2.0, "delta": 1e-6}
    assert settings(order, "signds")["dp"] == {"delta": 1e-6}
    assert settings(order, "signds")["signds"] == {"sign_k": 0.2}
    assert of_modes(order).notes[-1] == "nbafl.mu: no effect in any of these modes."


def test_a_mode_may_have_settings_of_its_own() -> None:
    order = order_of(
        BASE
        | {"modes": {"plain": None, "dp": {"optimizer.lr": 0.1, "dp": {"noise": 2.0}}}, "seeds": 2, "mode": "nbafl"},
        words=["dp:dp.clip=0.3", "plain:optimizer.lr=0.2"],
    )
    assert (order.modes, order.seeds) == (("plain", "dp"), 2)
    assert settings(order, "dp")["optimizer"] == {"lr": 0.1}
    assert settings(order, "dp")["dp"] == {"noise": 2.0, "clip": 0.3}
    assert settings(order, "plain")["optimizer"] == {"lr": 0.2}
    own = {"optimizer.lr": 0.1, "dp.noise": 2.0, "dp.clip": 0.3}
    assert [run.values for run in of_modes(order).runs][-1] == {"mode": "dp"} | own


def test_a_noise_of_its_own_takes_the_place_of_a_shared_budget() -> None:
    own = {"dp": {"dp": {"noise": 2.0}}}
    order = Order(modes=("dp", "local-dp"), shared=BASE | {"dp": {"epsilon": 3.0}}, own=own)
    assert settings(order, "dp")["dp"] == {"noise": 2.0}
    assert settings(order, "local-dp")["dp"] == {"epsilon": 3.0}
    other = Order(modes=("dp",), shared=BASE | {"dp": {"noise": 3.0}}, own={"dp": {"dp": {"epsilon": 2.0}}})
    assert settings(other, "dp")["dp"] == {"epsilon": 2.0}


def test_the_command_line_goes_before_the_file() -> None:
    order = order_of({"modes": "plain, dp", "seeds": 5}, modes=("signds",), seeds=1)
    assert (order.modes, order.seeds) == (("signds",), 1)
    assert order_of({"modes": "plain, dp"}).modes == ("plain", "dp")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modes": ("plian",)}, "Unknown mode 'plian'. Did you mean 'plain'?"),
        ({"modes": ("plain",), "own": {"dpp": {}}}, "Unknown mode 'dpp'. Did you mean 'dp'?"),
        ({"modes": ()}, "Expected modes to compare"),
        ({"modes": ("plain", "dp", "plain")}, "The mode plain was given more than once"),
        ({"modes": ("plain",), "seeds": 0}, "Expected seeds from 1 to 1,000, got 0"),
        ({"modes": ("plain",), "seeds": 1001}, "got 1001"),
    ],
)
def test_an_order_that_can_not_be_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        Order(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modes": 3}, "Expected modes as a list"),
        ({"modes": {"dp": 3}}, r"modes\.dp, got 3"),
        ({"modes": ["plain"], "seeds": "two"}, "seeds='two' does not work"),
        ({"modes": ["plain"], "seeds": True}, "seeds=True does not work"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        order_of(values)


def test_settings_for_a_mode_that_is_not_compared_are_refused() -> None:
    with pytest.raises(ConfigError, match="dp has settings of its own, but is not among the modes plain"):
        order_of({"modes": ["plain"]}, words=["dp:optimizer.lr=1"])


@pytest.mark.parametrize(
    ("shared", "own", "message"),
    [
        ({"federate": {"round": 3}}, {}, "Did you mean 'federate.rounds'"),
        ({}, {"plain": {"dp": {"noise": 1.0}}}, r"Mode plain: dp\.noise has no effect.*plain:KEY=VALUE"),
        ({"dp": {"noise": 1.0, "epsilon": 1.0}}, {}, "Mode dp: .*both was given"),
        ({"federate": {"per_round": 99}}, {}, "Mode plain: .*more than the 10 clients"),
    ],
)
def test_what_a_mode_can_not_have_is_refused_before_anything_runs(
    shared: dict[str, Any], own: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        of_modes(Order(modes=("plain", "dp"), shared={"data": {"name": "breast-cancer"}} | shared, own=own))


def test_how_many_clients_the_data_have_is_left_to_them() -> None:
    """Sums of one client are refused, and of as many as will be there nothing is known yet."""
    shared = {"data": {"name": "heart-disease", "split": "natural"}, "federate": {"per_round": 3}}
    planned = of_modes(Order(modes=("plain", "masks", "paillier"), shared=shared))
    assert [run.values["mode"] for run in planned.runs] == ["plain", "masks", "paillier"]


def test_clients_under_local_noise_take_bounded_steps_unless_told_otherwise() -> None:
    order = Order(modes=("plain", "local-dp"))
    made = of_modes(order)
    plain, local = (run.settings for run in made.runs)
    assert "grad_clip" not in plain.get("optimizer", {})
    assert local["optimizer"]["grad_clip"] == 1.0
    assert any("local-dp: optimizer.grad_clip=1" in note for note in made.notes)
    told = of_modes(Order(modes=("local-dp",), shared={"optimizer": {"grad_clip": 5.0}}))
    assert told.runs[0].settings["optimizer"]["grad_clip"] == 5.0
    assert not any("grad_clip" in note for note in told.notes)


def axis(word: str) -> tuple[Any, ...]:
    (found,), rest = parse_axes([word])
    assert rest == []
    return found.values


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("dp.clip=0.1:0.9:5", (0.1, 0.3, 0.5, 0.7, 0.9)),
        ("dp.clip=0.9:0.1:3", (0.9, 0.5, 0.1)),
        ("dp.clip=0.3:0.7:1", (0.3,)),
        ("federate.clients=10:50:5", (10, 20, 30, 40, 50)),
        ("dp.noise=log:0.01:1:3", (0.01, 0.1, 1.0)),
        ("dp.delta=1e-6,1e-5", (1e-6, 1e-5)),
        ("dp.clip=adaptive, 0.5,1", ("adaptive", 0.5, 1)),
        ("data.split=iid,dirichlet:0.3", ("iid", "dirichlet:0.3")),
        ("federate.per_round=null,2", (None, 2)),
    ],
)
def test_the_forms_of_an_axis(word: str, values: tuple[Any, ...]) -> None:
    assert axis(word) == values
    assert [type(value) for value in axis(word)] == [type(value) for value in values]


def test_a_key_and_its_values_may_be_two_words() -> None:
    axes, rest = parse_axes(["federate.rounds", "3", "dp.clip", "0.1,0.2", "job.yaml"])
    assert axes == [Axis(key="dp.clip", values=(0.1, 0.2))]
    assert rest == ["federate.rounds", "3", "job.yaml"]


@pytest.mark.parametrize(
    "word",
    ["data.split=dirichlet:0.3", "dp.clip=0.5", "model.name=package.module:Class", "a.yaml", "data.folder='a,b'"],
)
def test_other_words_are_left_alone(word: str) -> None:
    assert parse_axes([word]) == ([], [word])


@pytest.mark.parametrize(
    "values",
    [
        *("0.1:0.9:0", "0.1:0.9:-2", "0.1:0.9:1.5", "0.1:0.9:x", "0.1:0.9", "0.1:0.9:3:4", "x:y:3", "nan:1:3"),
        *("0:inf:3", "log:0:1:3", "log:-1:1:3", "log:0.1:1", "log:1:2:3:4", "0.1,,0.3", "0.1,nan", "1:2:99999999999"),
        *("0.5:0.5:3", "0.1,0.1", "0.1,{a: b}", ",", "1:1"),
    ],
)
def test_a_bad_axis_is_refused_by_name(values: str) -> None:
    with pytest.raises(ConfigError, match=r"dp\.clip"):
        parse_axes([f"dp.clip={values}"])


@given(
    st.floats(-1e6, 1e6).map(lambda x: round(x, 3)),
    st.floats(-1e6, 1e6).map(lambda x: round(x, 3)),
    st.integers(2, 50),
)
def test_a_range_goes_evenly_from_end_to_end(first: float, last: float, number: int) -> None:
    if abs(first - last) < 0.1:
        return
    values = axis(f"dp.clip={first}:{last}:{number}")
    assert (len(values), values[0], values[-1]) == (number, first, last)
    step = (last - first) / (number - 1)
    assert all(math.isclose(b - a, step, rel_tol=1e-3) for a, b in pairwise(values))


@given(st.floats(1e-9, 1e9), st.floats(1.5, 1e6), st.integers(2, 50))
def test_a_logarithmic_range_goes_by_equal_factors(first: float, factor: float, number: int) -> None:
    values = axis(f"dp.noise=log:{first!r}:{first * factor!r}:{number}")
    assert len(values) == number
    assert math.isclose(values[0], first, rel_tol=1e-9)
    assert math.isclose(values[-1], first * factor, rel_tol=1e-9)
    step = factor ** (1 / (number - 1))
    assert all(math.isclose(b / a, step, rel_tol=1e-9) for a, b in pairwise(values))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=8, unique=True))
def test_a_list_is_read_back_as_it_was_written(values: list[float]) -> None:
    assert axis("dp.clip=" + ",".join(map(repr, values))) == tuple(values)


def test_an_axis_refuses_nonsense() -> None:
    for values in ((), (math.nan,), (1, 1)):
        with pytest.raises(ConfigError, match=r"axis dp\.clip"):
            Axis(key="dp.clip", values=values)
