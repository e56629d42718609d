"""The nodes that a run on one machine needs, and what each is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError
from tacit.flower.relay import SETTING
from tacit.holder.new import trial as trial_holder
from tacit.modes.catalogue import mode_of, plan_of, resolve
from tacit.modes.keys import write_keys
from tacit.protocols.paillier import PaillierSum
from tacit.protocols.signatures import new_identity
from tacit.runs.folder import CONFIG, JOURNAL, RunFolder, records_of
from tacit.runs.journal import Start
from tacit.runs.progress import complete
from tacit.site.new import trial
from tacit.storage import is_there, write_atomically
from tacit.tasks.tables import is_file, owners

NodeConfig = Mapping[str, bool | int | str]
_LIST = "clients.pub"
SPLIT_SEED = 0  # of runs without a seed: all parties have to split the data alike


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
    data = resolved.data
    if config.seed is None and data.split_seed is None:
        data = data.model_copy(update={"split_seed": SPLIT_SEED})
    return resolved.model_copy(update={"data": data})


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


def nodes_of(config: Resolved, folder: Path) -> dict[str, NodeConfig]:
    """Return the config of each node by its name, and leave in ``folder`` the sites, and the keys that it takes.

    A client's node carries frames to its site, whose process holds the data, and a key holder's to its own. Where all
    clients share a key (legacy), which a site refuses to hold, the nodes themselves are the clients.
    """
    clients = config.federate.clients or 0
    common: NodeConfig = {} if config.seed is None else {"tacit-simulation": True}
    pin: Path | None = None
    identities: dict[int, Path] = {}
    holders: dict[str, NodeConfig] = {}
    if mode_of(config.mode).encrypted:
        keys = write_keys(config.paillier, folder)
        pin = keys.public
        if 0 in keys.secret:
            shared: NodeConfig = {"tacit-pin": str(pin), "tacit-key": str(keys.secret[0]), **common}
            return {f"client-{number}": {"partition-id": number, **shared} for number in range(clients)}
        identities = _identities(folder / "identities", clients)
        for party, path in keys.secret.items():
            holders[f"holder-{-party}"] = {SETTING: str(_holder(folder / f"holder-{-party}", path, config, clients))}
    nodes: dict[str, NodeConfig] = {}
    for number in range(clients):
        contract = trial(folder / f"site-{number}", config, number=number, pin=pin, identity=identities.get(number))
        nodes[f"client-{number}"] = {"partition-id": number, SETTING: str(contract.socket)}
    return nodes | holders


def _identities(folder: Path, clients: int) -> dict[int, Path]:
    """Make the clients' lasting identities, and the list of them that key holders go by."""
    made = [new_identity(f"client-{number}") for number in range(clients)]
    paths = {number: folder / f"client-{number}.key" for number in range(clients)}
    for path, (secret, _) in zip(paths.values(), made, strict=True):
        write_atomically(path, secret, mode=0o600)
    write_atomically(folder / _LIST, b"".join(line for _, line in made))
    return paths


def _holder(folder: Path, key: Path, config: Resolved, clients: int) -> Path:
    protocol = plan_of(config, clients).protocol
    assert isinstance(protocol, PaillierSum), "only encrypted sums have key holders"
    return trial_holder(
        folder,
        key=key,
        clients=folder.parent / "identities" / _LIST,
        rules=protocol.rules,
        prove=config.paillier.prove,
        insecure_key_size=config.paillier.insecure_key_size,
    )


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
