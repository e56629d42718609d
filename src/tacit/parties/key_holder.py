"""A key holder at a node: its key lies in a file of its own, and what it knows of a run beside it.

The key never leaves the node: it is read for one answer and forgotten. What was opened is on disk before it is told,
under a lock, so that neither a restart nor two requests at once open two sums of a round. The file is as secret as the
key: an authority's has what its clients' masks are made of. To lose it costs the run and nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from tacit.config.run_config import RunConfig
from tacit.config.sections import Paillier
from tacit.crypto.paillier import PrivateKey
from tacit.crypto.paillier.public import Noise
from tacit.errors import KeysError, StorageError
from tacit.flow import ClientId
from tacit.modes.catalogue import mode_of
from tacit.modes.keys import holder_of, read_key
from tacit.parties.calls import Value
from tacit.parties.operator import clients_of, floor_of, key_of, private_file
from tacit.protocols.paillier import Caution, PaillierSum
from tacit.storage import write_atomically
from tacit.wire import Frame


def answer(
    request: Frame, *, key: Path, settings: Paillier, protocol: PaillierSum, run_id: int, node: Mapping[str, Value]
) -> bytes:
    """Return what the holder of ``key`` says to a request in the run ``run_id``.

    Args:
        request: what the holder is asked.
        key: the file of the key, or of a share.
        settings: of the run.
        protocol: as the run's settings give it.
        run_id: Flower's number of the run.
        node: the node's own settings, which its operator wrote.
    """
    memory = key.with_name(f"{key.name}.opened-{run_id}")
    with _alone(memory):
        before = memory.read_bytes() if memory.exists() else b""
        caution = Caution(
            rules=protocol.rules,
            layout=protocol.layout,
            floor=floor_of(node),
            clients=clients_of(node),
            memory=before,
        )
        holder = holder_of(read_key(private_file(key), settings), settings, caution)
        reply = holder.answer(request)
        if holder.memory != before:  # which stays as it is while the blocks of a sum are opened
            write_atomically(memory, holder.memory, mode=0o600, advice="Nothing was opened. Free some space.")
    return reply


def numbers(node: Mapping[str, Value], config: RunConfig) -> tuple[ClientId, ...]:
    """Return the number of the key holder that a node is, by the key file in its settings; none where it is none."""
    if "tacit-key" not in node or not mode_of(config.mode).encrypted or config.paillier.keys == "shared":
        return ()
    return (number_of(key_of(node, config.paillier), config.paillier),)


def number_of(path: Path, settings: Paillier) -> ClientId:
    """Return the number of the holder of a key file: the share's, or that of an authority."""
    from tacit.crypto import keyfile

    file = keyfile.read(private_file(path), insecure_key_size=settings.insecure_key_size)
    if file.sealed:
        raise KeysError(
            f"The key file {path} is sealed with a passphrase, and nobody is at a node to give it. Keep it unsealed, "
            "where only the node's user can read it."
        )
    return -1 if file.share is None else -file.share


@functools.lru_cache(maxsize=1)
def own_key(path: Path, settings: Paillier) -> Noise:
    """Return the key of a client that shares it with all others (legacy); it makes noise faster."""
    key = read_key(private_file(path), settings)
    assert isinstance(key, PrivateKey), "keys that are shared are no shares"
    return key


@contextlib.contextmanager
def _alone(memory: Path) -> Iterator[None]:
    """Let one request at a time through."""
    lock = memory.with_name(f".{memory.name}.lock")
    try:
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise StorageError(
            f"Can't write beside the key file: {error.strerror or error}. Nothing was opened."
        ) from error
