"""Every key of the configuration with values at, beside and far beyond its bounds: a sentence or a plan, and soon."""

from __future__ import annotations

import signal
import time
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from tacit.config import overrides
from tacit.config.domains import Between, Domain, Name, Place
from tacit.config.run_config import RunConfig, from_mapping, known_keys
from tacit.config.sections import Section
from tacit.errors import ConfigError, TacitError
from tacit.modes.catalogue import MODES, plan_of, resolve

PATIENCE = 20  # seconds for one key in one mode, many times what it takes
STRANGE: list[Any] = [
    *(0, -1, 1, 2**31, 2**32, 2**63, 2**64, 10**20, 10**400, 10**5000, -(2**63)),
    *(0.0, -0.0, 1e-320, 1e-45, 1e38, 1e308, -1e308, float("inf"), float("-inf"), float("nan")),
    *(
        "",
        " ",
        "x",
        "x" * 256,
        "x" * 1_000_000,
        "ü" * 200,
        "\0",
        "a\nb",
        "\udcff",
        "9" * 5000,
        "1e400",
        "nan",
        "../..",
        "/",
    ),
    *(None, True, False, [], {}, [1], {"a": 1}, b"\xff", object(), 1j, (1, 2)),
]
ASKED: dict[str, dict[str, Any]] = {  # what makes a mode's settings whole
    "dp": {"dp": {"noise": 1.0}},
    "local-dp": {"dp": {"noise": 1.0}},
    "dp-sgd": {"dp": {"noise": 1.0}},
    "paillier": {"paillier": {"bits": 256, "insecure_key_size": True}},
}


def _field(key: str) -> Any:
    *section, name = key.split(".")
    model: Any = RunConfig.model_fields[section[0]].annotation if section else RunConfig
    return model.model_fields[name]


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in (*typing.get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield from _parts(part)


def _domains(key: str) -> list[Domain]:
    field = _field(key)
    found = [part for part in (*_parts(field.annotation), *field.metadata) if isinstance(part, Domain)]
    return list(dict.fromkeys(found))


def _edges(key: str) -> list[Any]:
    """Return the ends of a key's domain, and what lies just beyond."""
    values: list[Any] = []
    for domain in _domains(key):
        if isinstance(domain, Between):
            values += [domain.low, domain.high, domain.low - 1, domain.high + 1, domain.high * 1.0000001]
            values += [(domain.low + domain.high) / 2, domain.low * 1.0000001]
    return values


@contextmanager
def _soon(what: str) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"{what} took more than {PATIENCE} s")

    before = signal.signal(signal.SIGPROF, ring)  # by the processor's time: other programs don't count
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _planned(mode: str, key: str, value: Any) -> bool:
    """Return whether a value gives a plan; it has to, or to be refused in a sentence of bounded length."""
    settings: dict[str, Any] = {"mode": mode, "data": {"name": "digits"}}
    overrides.merge(settings, ASKED.get(mode, {}))
    section = key.split(".", maxsplit=1)[0]
    if key in ("dp.epsilon", "dpsgd.epsilon"):
        overrides.put(settings, f"{section}.noise", None)
    overrides.put(settings, key, value)
    try:
        config = resolve(from_mapping(settings))
        plan_of(resolve(config), config.federate.clients or 10)
        str(config.to_yaml()).encode()
    except TacitError as error:
        told = str(error)
    else:
        return True
    assert 0 < len(told) < 2000
    told.encode()
    return False


@pytest.mark.parametrize("key", known_keys())
def test_every_number_has_bounds_and_every_text_an_end(key: str) -> None:
    """A new key without a domain fails here."""
    kinds = {part for part in _parts(_field(key).annotation) if isinstance(part, type)}
    told = {type(domain) for domain in _domains(key)}
    if kinds & {int, float}:
        assert Between in told
    if any(kind.__name__ in ("Path", "PosixPath") for kind in kinds):
        assert Place in told
    if str in kinds and key != "paillier.shares":  # that one has a pattern
        assert Name in told


@pytest.mark.parametrize("key", known_keys())
def test_any_value_of_a_key_gives_a_plan_or_a_sentence(key: str) -> None:
    modes = [key.split(".", maxsplit=1)[0]] if key.split(".", maxsplit=1)[0] in MODES else ["dp", "plain"]
    modes += {"dp": ["local-dp", "dp-sgd"], "dpsgd": ["dp-sgd", "local-dp"]}.get(key.split(".", maxsplit=1)[0], [])
    with _soon(key):
        for mode in dict.fromkeys(modes):
            for value in [*STRANGE, *_edges(key)]:
                _planned("plain" if key == "mode" else mode, key, value)


@pytest.mark.parametrize("key", [key for key in known_keys() if any(isinstance(d, Between) for d in _domains(key))])
def test_just_beyond_a_bound_is_refused_with_the_value_and_the_domain(key: str) -> None:
    (domain,) = (domain for domain in _domains(key) if isinstance(domain, Between))
    whole = isinstance(domain.high, int) and int in set(_parts(_field(key).annotation))
    beyond: list[float] = [domain.high + 1, domain.low - 1] if whole else [domain.high * 1.001, -domain.low - 1e-9]
    for value in (*beyond, float("nan"), float("inf")):
        settings: dict[str, Any] = {}
        overrides.put(settings, key, value)
        with pytest.raises(ConfigError, match=key) as caught:
            from_mapping(settings)
        assert "does not work" in str(caught.value)
        assert str(domain) in str(caught.value) or "finite number" in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "key", "value"),
    [
        ("plain", "train.batch_size", 99999999999999999999),
        ("plain", "train.batch_size", 4294967296),
        ("plain", "train.local_epochs", 99999999999999999999),
        ("dp-sgd", "dpsgd.micro_batch", 2**63),
        ("dp-sgd", "dpsgd.clip", 1e308),
        ("plain", "optimizer.lr", 1e308),
        ("plain", "optimizer.mu", 1e308),
        ("plain", "optimizer.weight_decay", 1e308),
        ("local-dp", "dp.epsilon", 1e38),
        ("dp-sgd", "dp.epsilon", 1e38),
        ("signds", "signds.step_factor", 2**63),
        ("plain", "data.name", "\udcff"),
        ("plain", "out", "x" * 256),
        ("plain", "out", "a/" * 3000),
    ],
)
def test_what_the_review_found_is_refused(mode: str, key: str, value: Any) -> None:
    assert not _planned(mode, key, value)


@pytest.mark.parametrize("mode", ["dp", "local-dp", "dp-sgd"])
@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds"), [(1e6, 1e-5, 1), (1e-6, 1e-5, 1), (8.0, 1e-100, 10), (1e6, 0.999, 1)]
)
def test_the_ends_of_the_budget_can_be_planned(mode: str, epsilon: float, delta: float, rounds: int) -> None:
    start = time.process_time()
    config = resolve(RunConfig(mode=mode, dp={"epsilon": epsilon, "delta": delta}, federate={"rounds": rounds}))
    plan = plan_of(resolve(config), 10)
    if plan.examples is not None:
        assert plan.examples.fitted([100] * 10).noise_multiplier > 0
    assert time.process_time() - start < PATIENCE


def test_sections_are_made_of_sections() -> None:
    assert all(issubclass(type(part), Section) for _, part in RunConfig() if isinstance(part, Section))
