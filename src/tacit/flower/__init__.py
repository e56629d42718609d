"""Tacit on Flower: whole apps, and protection for an app that is there already.

A whole app, in two files that ``tacit deploy new`` writes::

    app = tacit.flower.server_app()                     # server_app.py
    app = tacit.flower.client_app()                     # client_app.py

Settings come from the run config of the app, whose keys are those of a job file. With a model and data of your own::

    app = tacit.flower.server_app(model=build, test=load_test)
    app = tacit.flower.client_app(model=build, data=load_data)      # load_data is given the node's config

An app that is there already, two lines::

    strategy = tacit.flower.Private(FedAvg(), mode="paillier")
    app = ClientApp(mods=[tacit.flower.private_mod])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.flower.node import client_app
    from tacit.flower.serve import server_app
    from tacit.flower.strategy.mod import private_mod
    from tacit.flower.strategy.private import Private

__all__ = ["Private", "client_app", "private_mod", "server_app"]

_HOMES = {  # imported when first used: a deployment is written and started where Flower itself need not be imported
    "Private": "strategy.private",
    "client_app": "node",
    "private_mod": "strategy.mod",
    "server_app": "serve",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
