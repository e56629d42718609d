"""Flower apps that are Tacit runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from tacit.errors import ConfigError, TacitError
from tacit.flower import calls
from tacit.flower.calls import Value
from tacit.flower.node import Node, Own

if TYPE_CHECKING:
    from torch import nn

    from tacit.training.examples import Examples


def client_app(
    *,
    model: Callable[[], nn.Module] | None = None,
    data: Callable[[Mapping[str, Value]], Examples] | None = None,
) -> ClientApp:
    """Return the app of a node: a client, a key holder, or both, as the node's config says.

    Args:
        model: makes the module; by default the run's configuration names it.
        data: returns this node's examples, given its config (``--node-config``); by default the node takes its part of
            the data set that the configuration names.
    """
    if (model is None) != (data is None):
        raise ConfigError("Expected model and data together: whoever brings one has to bring the other.")
    return calls.client_app(Node(own=None if model is None or data is None else Own(model=model, data=data)))


def server_app(
    *, model: Callable[[], nn.Module] | None = None, test: Callable[[], Examples] | None = None
) -> ServerApp:
    """Return the app of the server.

    Args:
        model: makes the module; by default the run's configuration names it.
        test: returns examples to test on after each round; with a model of your own.
    """
    if (model is None) != (test is None):
        raise ConfigError("Expected model and test together: whoever brings one has to bring the other.")
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        from tacit.flower.log import LoggingObserver
        from tacit.flower.serve import Serving, serve  # brings torch, which most messages to a node don't need

        observer = LoggingObserver()
        serving = None if model is None or test is None else Serving(model=model, test=test)
        try:
            serve(grid, dict(context.run_config), serving=serving, observer=observer)
        except TacitError as error:
            observer.failed(error)
            raise

    return app
