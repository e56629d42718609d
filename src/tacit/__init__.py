"""Tacit: privacy-preserving federated learning.

>>> import tacit
>>> result = tacit.run(tacit.RunConfig(data={"name": "digits"}, federate={"rounds": 2}, seed=1), quiet=True)
>>> len(result.rounds)
2

Names are imported when they are first used, so that ``import tacit`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit import dpsgd
    from tacit.config.run_config import RunConfig
    from tacit.errors import TacitError
    from tacit.runs.federation import Federation
    from tacit.runs.result import Result
    from tacit.runs.run import resume, run
    from tacit.runs.trained import load
    from tacit.training.hooks import Context, Hooks
    from tacit.training.private.normalisation import fix

__version__ = "0.2.0"  # the one place it stands in
__all__ = [
    "Context",
    "Federation",
    "Hooks",
    "Result",
    "RunConfig",
    "TacitError",
    "__version__",
    "dpsgd",
    "fix",
    "load",
    "resume",
    "run",
]

_HOME = {
    "Context": "tacit.training.hooks",
    "Federation": "tacit.runs.federation",
    "Hooks": "tacit.training.hooks",
    "Result": "tacit.runs.result",
    "RunConfig": "tacit.config.run_config",
    "TacitError": "tacit.errors",
    "fix": "tacit.training.private.normalisation",
    "load": "tacit.runs.trained",
    "resume": "tacit.runs.run",
    "run": "tacit.runs.run",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name == "dpsgd":
        return importlib.import_module("tacit.dpsgd")
    if name not in _HOME:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
