"""A new key holder: a folder with its rules and the key's memory, still empty."""

from __future__ import annotations

from pathlib import Path

from tacit.holder import process
from tacit.holder.memory import Memory
from tacit.holder.settings import FILE, MEMORY, Settings
from tacit.protocols.paillier import Rules
from tacit.protocols.paillier.register import FLOOR
from tacit.storage import make_folder, write_atomically

_ADVICE = "Choose another --out."
_MOST = 1 << 30  # openings in a trial


def init(folder: Path, settings: Settings) -> None:
    """Make a holder's folder, for its owner alone; what could not work is refused before anything is written.

    Args:
        folder: new, or without a memory: one that is there is never replaced.
        settings: what the operator allows; paths in it are whole.
    """
    settings.check(Path(FILE))
    file = process.key_file(settings)
    process.known_clients(settings)
    make_folder(folder, mode=0o700, advice=_ADVICE)
    Memory.make(folder / MEMORY, process.memory_identity(file))
    write_atomically(folder / FILE, settings.to_text().encode(), mode=0o600, replace=False, advice=_ADVICE)


def trial(folder: Path, *, key: Path, clients: Path, rules: Rules, prove: bool, insecure_key_size: bool) -> None:
    """Make one of the key holders of a trial on one machine: it allows what the run asks for.

    Args:
        folder: new.
        key: its file, or that of a share, unsealed: nobody is asked for words.
        clients: the file with the identities of all clients.
        rules: of the run.
        prove: whether parts of a decryption come with proofs.
        insecure_key_size: allow keys of less than 2048 bits.
    """
    settings = Settings(
        key=key.absolute(),
        clients=clients.absolute(),
        minimum_clients=max(FLOOR, rules.minimum_clients),
        rounds=rules.rounds,
        openings=_MOST,
        differences="none",  # cohorts of a trial are as they come
        prove=prove,
        unsealed=True,
        insecure_key_size=insecure_key_size,
    )
    init(folder, settings)
