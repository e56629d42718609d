"""The nodes that a run on one machine needs, and what each is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.flower.relay import SETTING
from tacit.flower.trial import LocalParties
from tacit.modes.catalogue import plan_of, resolve
from tacit.runs.folder import CONFIG, JOURNAL, RunFolder, records_of
from tacit.runs.journal import Start
from tacit.runs.progress import complete
from tacit.storage import is_there
from tacit.tasks.tables import is_file, owners

NodeConfig = Mapping[str, bool | int | str]


def runnable(config: RunConfig) -> Resolved:
    """Return the configuration as all parties get it, or say what can't work before anything is started."""
    if config.out is None:
        raise ConfigError("out has to be set: the folder of the run.")
    out = config.out.absolute()
    data = config.data
    if data.client and data.split in (None, "natural") and config.federate.clients is None and is_file(data.name):
        everyone = len(owners(Path(data.name), data.client))
        config = config.model_copy(update={"federate": config.federate.model_copy(update={"clients": everyone})})
    resolved = shared(config)
    data = resolved.data
    if data.folder is not None:
        data = data.model_copy(update={"folder": data.folder.absolute()})
    return resolved.model_copy(update={"out": out, "data": data})


def shared(config: RunConfig) -> Resolved:
    """Return the configuration with what parties in several places have to agree on."""
    resolved = resolve(config.model_copy(update={"engine": "flower"}))
    clients = resolved.federate.clients
    if config.federate.drop:
        raise ConfigError(
            f"federate.drop={config.federate.drop:g} simulates drop-outs, and a deployment's clients are real. Leave "
            "it out, or use `tacit run`."
        )
    if clients is None:
        raise ConfigError("federate.clients has to be set (--clients): each client is a SuperNode.")
    plan_of(resolved, clients)  # refuses settings that don't go together
    return resolved


def clear(out: Path, *, force: bool) -> None:
    """Refuse a folder that holds another run or, with ``force``, take that run away; an unfinished deployment goes on.

    Whether it is one with the same settings the server looks.
    """
    if not force and unfinished(out):
        return
    RunFolder.check(out, force=force)
    if force and out.exists():
        RunFolder.create(out, config="", force=True).close()  # fails where another process is at it
        for name in (CONFIG, JOURNAL):
            (out / name).unlink()


def unfinished(out: Path) -> bool:
    """Return whether a folder holds a deployment that has begun and not ended."""
    if not is_there(out / JOURNAL):
        return False
    deployed = any(isinstance(record, Start) and record.deployed for record in records_of(out))
    return deployed and complete(out) is None


def nodes_of(parties: LocalParties) -> dict[str, NodeConfig]:
    """Return the config of each node by its name: it carries frames to the process of its party."""
    nodes: dict[str, NodeConfig] = {}
    for party in parties.numbers:
        own: NodeConfig = {"partition-id": party} if party >= 0 else {}
        name = f"client-{party}" if party >= 0 else f"holder-{-party}"
        nodes[name] = {**own, SETTING: str(parties.socket(party))}
    return nodes


def node_words(config: NodeConfig) -> str:
    """Return a node's config as ``--node-config`` takes it.

    >>> node_words({"partition-id": 0, "tacit-simulation": True, "tacit-pin": "a b"})
    'partition-id=0 tacit-simulation=true tacit-pin="a b"'
    """
    words = []
    for key, value in config.items():
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        words.append(f"{key}={text}")
    return " ".join(words)
