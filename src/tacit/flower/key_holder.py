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
from typing import Any

from tacit.config.sections import Paillier
from tacit.errors import ConfigError, KeysError, StorageError
from tacit.flow import ClientId
from tacit.flower.envelope import Value
from tacit.flower.operator import clients_of, floor_of, private_file
from tacit.protocols.paillier import Authority, Caution, KeyCopy, PaillierSum, ShareHolder
from tacit.protocols.protocol import KeyHolder
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
        caution = Caution(
            rules=protocol.rules,
            layout=protocol.layout,
            floor=floor_of(node),
            clients=clients_of(node),
            memory=memory.read_bytes() if memory.exists() else b"",
        )
        holder = _holder(key, settings, caution)
        reply = holder.answer(request)
        if holder.memory:
            write_atomically(memory, holder.memory, mode=0o600, advice="Nothing was opened. Free some space.")
    return reply


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


def _holder(key: Path, settings: Paillier, caution: Caution) -> KeyHolder:
    from tacit.crypto import keyfile, paillier

    private_file(key)
    if settings.keys == "threshold":
        share = keyfile.load_share(key, insecure_key_size=settings.insecure_key_size)
        return ShareHolder(share=share, caution=caution, prove=settings.prove)
    private = keyfile.load_private(key, insecure_key_size=settings.insecure_key_size)
    if not isinstance(private, paillier.PrivateKey):
        raise ConfigError(f"The key file {key} holds no private Paillier key.")
    kind = KeyCopy if settings.keys == "shared" else Authority
    return kind(private=private, caution=caution)


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
