r"""What the server does with the average update :math:`\Delta_t`: FedAvg and the adaptive optimisers.

===========  ==========================================================================================
fedavg       :math:`w + \eta \Delta_t` (McMahan et al. 2017)
fedavgm      :math:`v = \beta v + \Delta_t; \; w + \eta v` (Hsu et al. 2019)
fedadam      :math:`w + \eta m / (\sqrt v + \tau)` with
             :math:`m = \beta_1 m + (1-\beta_1) \Delta_t; \; v = \beta_2 v + (1-\beta_2) \Delta_t^2`
fedyogi      as fedadam with :math:`v = v - (1-\beta_2) \Delta_t^2 \, \mathrm{sign}(v - \Delta_t^2)` (Reddi et al. 2021)
===========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.vectors import Vector

Name = Literal["fedavg", "fedavgm", "fedadam", "fedyogi"]
State = Mapping[str, Vector]


@dataclass(frozen=True, kw_only=True)
class ServerOptimizer:
    """A pure step: the state goes in and comes out, and is what a checkpoint keeps."""

    name: Name = "fedavg"
    lr: float = 1.0
    momentum: float = 0.9  # beta of fedavgm, beta_1 of the adaptive ones
    beta2: float = 0.99
    tau: float = 1e-3

    def start(self, parameters: int) -> State:
        """Return the state before the first round."""
        match self.name:
            case "fedavg":
                return {}
            case "fedavgm":
                return {"momentum": np.zeros(parameters, np.float32)}
            case _:
                second = np.full(parameters, self.tau**2, np.float32)
                return {"momentum": np.zeros(parameters, np.float32), "second": second}

    def step(self, model: Vector, update: Vector, state: State) -> tuple[Vector, State]:
        """Return the new model and the new state.

        >>> plain = ServerOptimizer()
        >>> plain.step(np.zeros(1, np.float32), np.ones(1, np.float32), {})[0]
        array([1.], dtype=float32)
        """
        if self.name == "fedavg":
            return _float32(model + self.lr * update), {}
        if self.name == "fedavgm":
            velocity = _float32(self.momentum * state["momentum"] + update)
            return _float32(model + self.lr * velocity), {"momentum": velocity}
        first = self.momentum * state["momentum"] + (1 - self.momentum) * update
        square = np.square(update)
        if self.name == "fedadam":
            second = self.beta2 * state["second"] + (1 - self.beta2) * square
        else:
            second = state["second"] - (1 - self.beta2) * square * np.sign(state["second"] - square)
        moved = model + self.lr * first / (np.sqrt(second) + self.tau)
        return _float32(moved), {"momentum": _float32(first), "second": _float32(second)}


def _float32(vector: NDArray[np.floating[Any]]) -> Vector:
    return vector.astype(np.float32, copy=False)
