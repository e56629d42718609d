"""One published file: found under either of its names and verified by SHA-256."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import DataError


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file as its authors published it.

    Two hashes identify it: that of the published bytes, and that of what they decompress to. The second one
    accepts copies that were decompressed (torchvision) or whose gzip header was rewritten (Debian).
    For a file that is not compressed the two are the same.
    """

    name: str
    size: int  # of the published bytes
    sha256: str  # of the published bytes
    content_size: int
    content_sha256: str

    @property
    def compressed(self) -> bool:
        """Whether the published file is gzip."""
        return self.name.endswith(".gz")

    def find(self, folder: Path) -> Path | None:
        """Return its path in ``folder``, as published or decompressed; no right to look is a DataError."""
        for name in (self.name, self.name.removesuffix(".gz")):
            try:
                if (folder / name).is_file():
                    return folder / name
            except OSError as error:
                raise DataError(
                    f"Can't look for {name} in {folder}: {error.strerror or error}. Give yourself the right "
                    "to read it, or choose another folder with --data-dir, TACIT_DATA or TACIT_CACHE."
                ) from error
        return None

    def read(self, path: Path, *, advice: str) -> bytes:
        """Return the verified, decompressed content of ``path``; ``advice`` ends the error otherwise."""
        try:
            with path.open("rb") as stream:
                # No right copy is twice as long, so that a huge wrong file is not read to its end.
                data = stream.read(2 * max(self.size, self.content_size) + 1)
        except OSError as error:
            raise DataError(f"Can't read {path}: {error.strerror or error}. {advice}") from error
        return self.verified(data, origin=str(path), advice=advice)

    def verified(self, data: bytes, *, origin: str, advice: str) -> bytes:
        """Return the decompressed content of ``data`` if a hash agrees, and raise DataError otherwise."""
        found = hashlib.sha256(data).hexdigest()
        if found == self.content_sha256:
            return data
        trouble = f"it is {len(data):,} bytes long where {self.size:,} were published"
        if self.compressed and data[:2] == b"\x1f\x8b":
            try:
                content = self._decompress(data)
            except (zlib.error, EOFError) as error:
                trouble = f"it is damaged ({error})"
            else:
                if found == self.sha256 or hashlib.sha256(content).hexdigest() == self.content_sha256:
                    return content
                trouble = "its content is another"
        elif not self.compressed:
            # Copies that went through a Windows checkout differ in their line ends only.
            content = data.replace(b"\r\n", b"\n")
            if hashlib.sha256(content).hexdigest() == self.content_sha256:
                return content
        expected = self.sha256 if data[:2] == b"\x1f\x8b" else self.content_sha256
        raise DataError(
            f"{origin} is not the published {self.name}: {trouble}. "
            f"Expected SHA-256 {expected}, found {found}. {advice}"
        )

    def _decompress(self, data: bytes) -> bytes:
        # The limit keeps a small hostile file from filling the memory.
        stream = zlib.decompressobj(wbits=31)
        content = stream.decompress(data, self.content_size + 1)
        if not stream.eof:
            raise EOFError("it ends early" if len(content) <= self.content_size else "it holds too much")
        return content
