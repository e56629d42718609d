"""A run's report as a page that follows it: served to browsers on this machine, and to nobody else.

The page asks every second whether the run got further, and shows what came. The server only reads: the run may be made
by this process, by another one, be finished, or not have begun.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tacit.errors import ConfigError, RunError, TacitError
from tacit.randomness import system_bytes
from tacit.report.page import Note, Page, Section
from tacit.report.page.html import content, marked, render
from tacit.report.run.baseline import beside
from tacit.report.run.page import run_page
from tacit.runs import history
from tacit.runs.folder import CONFIG, JOURNAL, RESULT, unborn
from tacit.storage import is_folder, is_there

HOST = "127.0.0.1"
_PATIENCE = 10.0  # seconds
_OFTEN = 0.05  # seconds after which a server that was closed notices
_WATCHED = (CONFIG, JOURNAL, RESULT)
_WORDS = {
    "waiting": "**Waiting.** The page fills as soon as the run begins.",
    "unfinished": "**Live.** The page follows the run, round by round.",
    "stopped": "**Stopped.** The page follows on when the run is resumed.",
    "finished": "**Finished.** The page is complete; `tacit report` keeps it as a file.",
    "damaged": "**The run can't be read at the moment.** The page tries again.",
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A page, and the state of the folder that it shows."""

    tag: str
    state: str
    page: Page


class LiveServer:
    """Serves the report of the run in a folder until it is closed.

    >>> with LiveServer(Path("runs/none")) as server:  # doctest: +ELLIPSIS
    ...     server.address.startswith("http://127.0.0.1:")
    True

    The address holds a secret: the folder of a run is for its owner alone, and a port of this machine is open to all
    who use it.

    Args:
        folder: of the run, which need not be there yet.
        port: where to listen; one that is free if 0.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        if folder.exists() and not is_folder(folder):
            raise RunError(f"{folder} is not a folder. Expected the folder of a run, there or to come.")
        self._secret = system_bytes(16).hex()
        self._reports = _Reports(folder)
        self._names: set[str] = set()  # by which browsers on this machine call it
        try:
            self._server = _Server((HOST, port), self._handler())
        except OSError as error:
            raise ConfigError(
                f"Can't listen on port {port} of {HOST}: {error.strerror}. Choose another with --port, or leave it out."
            ) from error
        self._names.update(f"{name}:{self.port}" for name in (HOST, "localhost"))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_OFTEN,), name="tacit-page", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}/{self._secret}/"

    @property
    def asked(self) -> int:
        """How often a page has asked for news."""
        return self._reports.asked

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> LiveServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        secret, reports = self._secret, self._reports
        names = self._names

        class Handler(BaseHTTPRequestHandler):
            """Answers a browser."""

            server_version, sys_version = "tacit", ""
            timeout = _PATIENCE  # of a peer that says nothing, or takes nothing: it holds a thread

            def do_GET(self) -> None:
                """Send the page, or what is new of it."""
                asked = urlsplit(self.path)
                # A page of another origin that a name server sends here has another name for us.
                if self.headers.get("Host") not in names or not asked.path.startswith(f"/{secret}/"):
                    self._send(HTTPStatus.NOT_FOUND, "text/plain", b"There is nothing here.\n")
                    return
                match asked.path.removeprefix(f"/{secret}/"):
                    case "":
                        self._send(HTTPStatus.OK, "text/html; charset=utf-8", reports.html())
                    case "content":
                        told = reports.news(seen=parse_qs(asked.query).get("seen", [""])[0])
                        status = HTTPStatus.NO_CONTENT if told is None else HTTPStatus.OK
                        self._send(status, "application/json", told or b"")
                    case _:
                        self._send(HTTPStatus.NOT_FOUND, "text/plain", b"There is nothing here.\n")

            def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
                """Say nothing: the terminal belongs to the run."""

        return Handler


class _Server(ThreadingHTTPServer):
    """Says nothing of a browser that went away: the terminal belongs to the run."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let go of a request that could not be answered."""


class _Reports:
    """The report of a folder as it is now; made anew only where the folder has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._shown: Shown | None = None
        self.asked = 0

    def html(self) -> bytes:
        """Return the whole page."""
        shown = self._now()
        return render(shown.page, live=_live(shown)).encode()

    def news(self, *, seen: str) -> bytes | None:
        """Return what a page that has ``seen`` a state is to show now; None where nothing is new."""
        self.asked += 1
        shown = self._now()
        if shown.tag == seen:
            return None
        told = content(shown.page) | _live(shown)
        return json.dumps(told | {"words": marked(told["words"])}, allow_nan=False).encode()

    def _now(self) -> Shown:
        with self._lock:
            tag = self._tag()
            if self._shown is None or self._shown.tag != tag:
                self._shown = self._made(tag)
            return self._shown

    def _tag(self) -> str:
        """Return what is different after every record of the run."""
        marks = []
        for name in _WATCHED:
            try:
                found = (self._folder / name).stat()
            except OSError:
                marks.append("-")
            else:
                marks.append(f"{found.st_size}.{found.st_mtime_ns}")
        return "_".join(marks)

    def _made(self, tag: str) -> Shown:
        try:
            if unborn(self._folder) or not all(is_there(self._folder / name) for name in (CONFIG, JOURNAL)):
                return Shown(
                    tag=tag, state="waiting", page=_notice(self._folder, "No run has begun here yet.", "plain")
                )
            found = history.read(self._folder)
            return Shown(tag=tag, state=found.status, page=run_page(found, baseline=beside(self._folder, found)))
        except TacitError as error:
            return Shown(tag=tag, state="damaged", page=_notice(self._folder, str(error), "bad"))
        except OSError as error:  # the folder was taken away while it was read
            return Shown(tag=tag, state="damaged", page=_notice(self._folder, error.strerror or str(error), "bad"))


def _live(shown: Shown) -> dict[str, str]:
    return {"tag": shown.tag, "state": shown.state, "words": _WORDS[shown.state]}


def _notice(folder: Path, text: str, tone: Any) -> Page:
    section = Section(title="Summary", parts=(Note(text=text, tone=tone),))
    return Page(title=f"Run {folder.name}", subtitle=f"Folder `{folder}`", sections=(section,))
