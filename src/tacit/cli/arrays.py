"""NumPy's files on the way in and out of the encrypting commands; nothing in them is ever unpickled."""

from __future__ import annotations

import io
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING

from tacit import foreign
from tacit.errors import ConfigError, DataError
from tacit.storage import write_atomically

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64] | NDArray[np.float64]

_MAGIC = b"\x93NUMPY"


def read_vector(path: Path) -> tuple[Numbers, tuple[int, ...]]:
    """Return the numbers of an .npy file as a flat vector of int64 or floats, and the shape they had."""
    import numpy as np

    try:
        with foreign.open_plain(path) as stream:
            start = stream.read(len(_MAGIC))
        if start != _MAGIC:
            raise DataError(f"{path} is no .npy file. Write one with numpy.save.")
        array = np.load(path, mmap_mode="r", allow_pickle=False)  # mapped: a lying header can't claim memory
        surplus = path.stat().st_size - array.offset - array.nbytes
    except OSError as error:
        raise DataError(f"Can't read {path}: {error.strerror or error}. Mend the path or its permissions.") from error
    except (
        ValueError,
        TypeError,
        EOFError,
        OverflowError,
        MemoryError,
        SyntaxError,
        TokenError,
        RecursionError,
    ) as error:
        hint = "Python objects are never read" if "object" in str(error).lower() else "it is cut off or damaged"
        raise DataError(
            f"{path} can't be read as an array of numbers: {hint} ({error}). Expected floats or integers, written by "
            "numpy.save."
        ) from error
    if surplus:
        raise DataError(f"{path} has {surplus} bytes after its array: it is damaged. Write it anew with numpy.save.")
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise DataError(f"{path} holds {array.size} values of type {array.dtype}, expected floats or integers.")
    flat = np.array(array).reshape(-1)
    if flat.dtype.kind == "u" and int(flat.max()) > np.iinfo(np.int64).max:
        raise DataError(f"{path} holds {flat.max()}, expected integers below 2^63. Scale them, or use floats.")
    return (flat.astype(np.int64) if flat.dtype.kind in "iu" else flat.astype(np.float64)), array.shape


def npy_bytes(array: Numbers) -> bytes:
    """Return the bytes of an .npy file."""
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def check_output(path: Path, *, force: bool) -> None:
    """Refuse an output that is there already before any work is done for it."""
    if path.is_dir():
        raise ConfigError(f"The output {path} is a folder. Name a file.")
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already. Choose another output, or replace it with --force.")


def write_output(path: Path, data: bytes, *, force: bool) -> None:
    """Write a command's output, whole or not at all."""
    write_atomically(path, data, advice="Nothing was written. Choose another output with -o.", replace=force)
