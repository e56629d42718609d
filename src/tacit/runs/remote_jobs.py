"""Jobs of parties that do not share a machine: a client has its own data only, the server none.

What a run in one process reads off everybody's data has to be said here: the largest client of an encrypted mean, the
smallest of NbAFL, the noise of DP-SGD. Each is refused with what to set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor, nn

from tacit.config.resolved import Resolved, given
from tacit.errors import ConfigError
from tacit.flow import ClientId
from tacit.modes.catalogue import mode_of, plan_of
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.run import GIVEN
from tacit.shares import Rows, Shares
from tacit.training.examples import UserData, tensors

Build = Callable[[], nn.Module]


def client_job(config: Resolved, randomness: Randomness, *, build: Build, data: UserData) -> jobs.Job:
    """Return the job of one client: whatever its number, the data are its own."""
    clients = _checked(config)
    features, labels = tensors(data, "this client")
    rows = Shares.alike(len(labels), clients=clients)
    return _job(config, randomness, build(), (features, labels), rows, None)


def server_job(
    config: Resolved, randomness: Randomness, *, build: Build, test: UserData | None, sizes: Mapping[ClientId, int]
) -> jobs.Job:
    """Return the server's job: the model, the test set where it has one, and no example of a client.

    Args:
        config: the run's.
        randomness: the server's.
        build: makes the model.
        test: examples to test on.
        sizes: how many examples each client holds, by its number, where they told. A client that is not there is never
            asked; so that its charges change nothing it counts as the largest, whose rate is the lowest.
    """
    clients = _checked(config)
    held = None if test is None else tensors(test, "the test set")
    evaluate = config.evaluate.model_copy(update={"train": False})
    config = config.model_copy(update={"evaluate": evaluate})
    largest = max(sizes.values(), default=1)
    counts = [sizes.get(client, largest) for client in range(clients)]
    shares = Shares.of_sizes(counts)
    if held is None:
        raise ConfigError(
            "The server needs a few examples to check the model with, even where it does not test: give server_app a "
            "test set, such as public data of the same shape."
        )
    examples = len(shares.order)
    shape = (examples, *held[0].shape[1:])
    train = held[0][:1].expand(shape), held[1][:1].expand(examples, *held[1].shape[1:])  # takes no memory
    return _job(config, randomness, build(), train, shares, held)


def _job(
    config: Resolved,
    randomness: Randomness,
    module: nn.Module,
    train: tuple[Tensor, Tensor],
    rows: Sequence[Rows],
    test: tuple[Tensor, Tensor] | None,
) -> jobs.Job:
    name = type(module).__name__
    return jobs.assemble(
        config=given(config, model=name),
        title=f"{name}, {len(rows)} clients",
        dataset=GIVEN,
        model_name=name,
        module=module,
        plan=plan_of(config, len(rows)),  # by the settings that all parties were told, and bind their replies to
        train=train,
        rows=rows,
        test=test,
        device=jobs.device_of(config.gpu),
        randomness=randomness,
    )


def _checked(config: Resolved) -> int:
    """Return how many clients there are; settings that would be read off data which are elsewhere are refused."""
    clients = config.federate.clients
    if clients is None or "clients" not in config.federate.model_fields_set:
        raise ConfigError("federate.clients has to be set: how many clients the federation has.")
    mode_of(config.mode).refuse_apart(config)
    return clients
