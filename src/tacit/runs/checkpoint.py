"""The state after a round, in one safetensors file that is replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tacit import foreign
from tacit.errors import RunError, WireError
from tacit.federated.plan import State
from tacit.storage import cannot_read, write_atomically
from tacit.vectors import Vector

WALL = "wall"
_SERVER = "server."
_LARGEST = 1 << 26  # bytes of a record


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that the next round depends on, and the seconds of the run so far.

    The round's journal record travels along, so that a crash between the checkpoint and the journal loses neither.
    """

    round_number: int
    model: Vector
    state: State
    mechanism: bytes  # what the next round's mechanism tells its clients
    seconds: Mapping[str, float]  # of all rounds so far: by stage, and WALL for the whole of them
    record: Mapping[str, Any] | None

    def write(self, path: Path) -> None:
        """Replace the file at ``path``."""
        tensors = {"model": self.model} | {_SERVER + name: vector for name, vector in self.state.items()}
        metadata = {
            "round": str(self.round_number),
            "mechanism": self.mechanism.hex(),
            "seconds": json.dumps(dict(self.seconds), allow_nan=False),
            "record": json.dumps(self.record, allow_nan=False),
        }
        write_atomically(path, save(tensors, metadata), mode=0o600)  # beside the journal, as private as that

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """Read the file at ``path``."""
        try:
            foreign.open_plain(path).close()  # a pipe would be waited for
            with safe_open(path, "numpy") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            return cls(
                round_number=int(metadata["round"]),
                mechanism=bytes.fromhex(metadata["mechanism"]),
                seconds={stage: float(spent) for stage, spent in foreign.json_object(metadata["seconds"]).items()},
                record=foreign.json_value(metadata["record"], largest=_LARGEST),
                model=tensors.pop("model"),
                state={name.removeprefix(_SERVER): vector for name, vector in tensors.items()},
            )
        except OSError as error:
            raise cannot_read(path, error) from error
        except SafetensorError as error:
            raise RunError(f"The checkpoint {path} is damaged: {error}.") from error
        except (WireError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is not a checkpoint of a run: {error!r}.") from error
