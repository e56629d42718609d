"""Features that are computed once, before a run: fixed functions of single examples, which cost no privacy."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.errors import ConfigError, StorageError
from tacit.storage import cache_folder, write_atomically
from tacit.tasks.data import DataSet, Examples
from tacit.tasks.scattering import Scattering

Kind = Literal["none", "scatter"]
_FORMAT = b"scatter 1"  # changed with every change of the numbers


@dataclass(frozen=True, kw_only=True)
class Features:
    """Which features to take of images; ``none`` leaves them as they are.

    Features are kept in half precision, in the cache and out of it, so that a run gives the same model either way.
    """

    kind: Kind = "none"
    scales: int = 2
    angles: int = 8

    def of(self, images: torch.Tensor, what: str) -> torch.Tensor:
        """Return the features of images (n, c, height, width), or the images where none are asked for."""
        if self.kind == "none":
            return images
        if images.ndim != 4:
            raise ConfigError(
                f"data.features=scatter is for images (channels, height, width); an example of {what} has shape "
                f"{tuple(images.shape[1:])}. Leave data.features out."
            )
        scattering = Scattering(height=images.shape[2], width=images.shape[3], scales=self.scales, angles=self.angles)
        return scattering.normalised(images).half().float()

    def of_data(self, data: DataSet, device: torch.device, note: Callable[[str], None]) -> DataSet:
        """Return a data set with these features, from the cache where they have been computed before."""
        if self.kind == "none":
            return data
        train = self._cached(data.train, data.name, device, note)  # first, so that its note comes before the wait
        return replace(data, train=train, test=self._cached(data.test, data.name, device, lambda _: None))

    def _cached(self, examples: Examples, what: str, device: torch.device, note: Callable[[str], None]) -> Examples:
        path = cache_folder() / "features" / f"{self._digest(examples.features)}.npy"
        found = _read(path, len(examples))
        if found is None:
            note(f"Computing scattering features of {len(examples):,} images, once; they are kept in {path.parent}.")
            found = self.of(torch.from_numpy(examples.features).to(device), what).cpu().numpy()
            _keep(path, found)
        return Examples(features=found, labels=examples.labels)

    def _digest(self, images: NDArray[np.float32]) -> str:
        settings = f"{images.shape} {self.kind} {self.scales} {self.angles}".encode()
        digest = hashlib.blake2b(_FORMAT + settings, digest_size=16)
        digest.update(np.ascontiguousarray(images).data)
        return digest.hexdigest()


def _read(path: Path, rows: int) -> NDArray[np.float32] | None:
    try:
        kept = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if kept.dtype != np.float16 or len(kept) != rows:
        return None
    features: NDArray[np.float32] = kept.astype(np.float32)
    return features


def _keep(path: Path, features: NDArray[np.float32]) -> None:
    """Keep features for the next run; where the cache can't be written, they are computed again."""
    buffer = io.BytesIO()
    np.save(buffer, features.astype(np.float16))
    with contextlib.suppress(StorageError):
        write_atomically(path, buffer.getvalue())
