from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.federated.server import Name, ServerOptimizer
from tacit.vectors import Vector

Floats = NDArray[np.float64]
LR, BETA, BETA2, TAU = 0.3, 0.8, 0.95, 0.01


def _fedavg(model: Floats, updates: list[Vector]) -> Floats:
    for update in updates:
        model = model + LR * update
    return model


def _fedavgm(model: Floats, updates: list[Vector]) -> Floats:
    velocity = np.zeros_like(model)
    for update in updates:
        velocity = BETA * velocity + update
        model = model + LR * velocity
    return model


def _adaptive(model: Floats, updates: list[Vector], *, yogi: bool) -> Floats:
    """Algorithm 2 of Reddi et al. 2021, coordinate by coordinate."""
    model = model.copy()
    for i in range(len(model)):
        m, v = 0.0, TAU**2
        for update in updates:
            d = float(update[i])
            m = BETA * m + (1 - BETA) * d
            if yogi:
                v = v - (1 - BETA2) * d * d * (1 if v > d * d else -1 if v < d * d else 0)
            else:
                v = BETA2 * v + (1 - BETA2) * d * d
            model[i] += LR * m / (v**0.5 + TAU)
    return model


def _reference(name: Name, model: Floats, updates: list[Vector]) -> Floats:
    match name:
        case "fedavg":
            return _fedavg(model, updates)
        case "fedavgm":
            return _fedavgm(model, updates)
        case _:
            return _adaptive(model, updates, yogi=name == "fedyogi")


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
def test_steps_follow_the_papers(name: Name) -> None:
    generator = np.random.default_rng(2)
    model = generator.normal(size=8).astype(np.float32)
    updates = [(0.1 * generator.normal(size=8)).astype(np.float32) for _ in range(5)]
    optimizer = ServerOptimizer(name=name, lr=LR, momentum=BETA, beta2=BETA2, tau=TAU)
    moved, state = model, optimizer.start(8)
    for update in updates:
        moved, state = optimizer.step(moved, update, state)
        assert moved.dtype == np.float32
        assert all(vector.dtype == np.float32 for vector in state.values())
    np.testing.assert_allclose(moved, _reference(name, model.astype(np.float64), updates), rtol=1e-4, atol=1e-6)
    others: list[Name] = ["fedavg", "fedavgm", "fedadam", "fedyogi"]
    for other in others:  # the references tell the optimisers apart
        if other != name:
            assert not np.allclose(moved, _reference(other, model.astype(np.float64), updates), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
def test_a_step_is_pure(name: Name) -> None:
    optimizer = ServerOptimizer(name=name)
    model, update, state = np.ones(3, np.float32), np.full(3, 0.5, np.float32), optimizer.start(3)
    before = {key: vector.copy() for key, vector in state.items()}
    first, _ = optimizer.step(model, update, state)
    second, _ = optimizer.step(model, update, state)
    assert first.tobytes() == second.tobytes()
    assert (model.tolist(), update.tolist()) == ([1.0] * 3, [0.5] * 3)
    assert all((state[key] == vector).all() for key, vector in before.items())


def test_fedavg_at_rate_one_is_the_mean_of_the_clients_models() -> None:
    model, update = np.array([1.0, 2.0], np.float32), np.array([0.25, -0.5], np.float32)
    assert ServerOptimizer().step(model, update, {})[0].tolist() == [1.25, 1.5]
