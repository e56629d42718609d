"""A key holder at a node: its key lies in a file of its own, and what it has opened beside it.

The key never leaves the node: it is read for one answer and forgotten. What was opened is on disk before it is told,
under a lock, so that neither a restart nor two requests at once open two sums of a round.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError, KeysError, StorageError
from tacit.flow import ClientId
from tacit.protocols.paillier import Authority, PaillierSum, ShareHolder
from tacit.protocols.protocol import KeyHolder
from tacit.runs.sections import Paillier
from tacit.storage import write_atomically

_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def answer(request: bytes, *, key: Path, settings: Paillier, protocol: PaillierSum, run_id: int) -> bytes:
    """Return what the holder of ``key`` says to a request in the run ``run_id``."""
    memory = key.with_name(f"{key.name}.opened-{run_id}")
    with _alone(memory):
        holder = _holder(key, settings, protocol, memory.read_bytes() if memory.exists() else b"")
        reply = holder.answer(request)
        if holder.memory:
            write_atomically(memory, holder.memory, mode=0o600, advice="Nothing was opened. Free some space.")
    return reply


def private_file(path: Path) -> Path:
    """Return the path of a key file that nobody but its owner can read, or say what is wrong with it."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise KeysError(
            f"The key file {path} can't be read: {error.strerror}. Check tacit-key in the node's config."
        ) from error
    if mode & _OPEN_TO_OTHERS:
        raise KeysError(
            f"Others than its owner may read the key file {path} (mode {mode & 0o777:o}). If anybody could have, make "
            f"a new key; otherwise: chmod 600 {path}"
        )
    return path


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
def own_key(path: str, insecure_key_size: bool) -> Any:
    """Return the key of a client that shares it with all others (legacy); it makes noise faster."""
    from tacit.crypto import keyfile

    return keyfile.load_private(private_file(Path(path)), insecure_key_size=insecure_key_size)


def _holder(key: Path, settings: Paillier, protocol: PaillierSum, memory: bytes) -> KeyHolder:
    from tacit.crypto import keyfile, paillier

    private_file(key)
    if settings.keys == "threshold":
        share = keyfile.load_share(key, insecure_key_size=settings.insecure_key_size)
        return ShareHolder(share=share, minimum_clients=protocol.minimum_clients, prove=settings.prove, memory=memory)
    private = keyfile.load_private(key, insecure_key_size=settings.insecure_key_size)
    if not isinstance(private, paillier.PrivateKey):
        raise ConfigError(f"The key file {key} holds no private Paillier key.")
    return Authority(private=private, minimum_clients=protocol.minimum_clients, memory=memory)


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
