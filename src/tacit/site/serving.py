"""Sites at their sockets: one in this process, or several, each in a process of its own or some together.

::

    serve(Path("site/"))        # what `tacit site serve` does; until SIGTERM
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType

from tacit.errors import RunError, TacitError
from tacit.service import Service, stopped_by_signals
from tacit.site import data as datas
from tacit.site.contract import LEDGER, check_private, read
from tacit.site.ledger import Ledger
from tacit.site.process import Site, Workshop

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
Ready = Callable[[Path], None]


def serve(*folders: Path, ready: Ready = lambda _: None) -> None:
    """Answer at the sockets of sites, in a process for each, until SIGTERM.

    Several sites are for trials on one machine: what takes long to import is imported once, and then each gets a
    process of its own (fork), which reads its own contract, data and ledger.

    Args:
        *folders: of the sites.
        ready: is called in a site's process once it answers.
    """
    if len(folders) == 1:
        answer(folders, ready=ready)
        return
    import tacit.runs.job  # noqa: F401 - and torch with it, before the processes part

    parted({str(folder): partial(answer, [folder], ready=ready) for folder in folders})


def answer(folders: Sequence[Path], *, ready: Ready, workshop: Workshop | None = None) -> None:
    """Answer for some sites in this process until SIGTERM.

    Args:
        folders: of the sites.
        ready: is called for each once all answer.
        workshop: the data that they share; by default the one site's own.
    """
    with ExitStack() as stack:
        services = []
        for folder in (one.absolute() for one in folders):
            check_private(folder)
            contract = read(folder)
            datas.check_same(contract.data)
            ledger = stack.enter_context(Ledger.open(folder / LEDGER, contract))
            own = Workshop(contract, datas.load(contract.data)) if workshop is None else workshop
            site = Site(folder=folder, contract=contract, ledger=ledger, workshop=own)
            services.append(Service(path=contract.socket, answer=site.answer, group=contract.group))
        for service in services:
            stack.enter_context(service)
        stack.enter_context(stopped_by_signals(services[0]))
        import tacit.runs.job  # noqa: F401 - it takes seconds, and nobody waits for an answer yet

        for folder in folders:
            ready(folder)
        services[0].run(*services[1:])


def parted(works: Mapping[str, Callable[[], None]], *, lost: Callable[[str], None] = lambda _: None) -> None:
    """Do each work in a process of its own, until all have ended; signals are passed on to them.

    Args:
        works: what is to be done, by the name under which its end is told of where that is an error.
        lost: is called with that name at once, while the others go on.
    """
    children: dict[int, str] = {}

    def pass_on(number: int, _: FrameType | None) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    for one in _SIGNALS:
        signal.signal(one, pass_on)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until all are there whom it is passed on to
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: libraries' own, which idle
        for name, work in works.items():
            child = os.fork()
            if child == 0:
                os._exit(_done(name, work))
            children[child] = name
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    ended = []
    while children:
        child, status = os.wait()
        name = children.pop(child)
        if status:
            how = f"by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "with an error"
            sys.stderr.write(f"The process of {name} ended {how}.\n")
            sys.stderr.flush()
            ended.append(name)
            lost(name)
    if ended:
        raise RunError(f"The process of {', '.join(ended)} ended with an error; its words are above.")


def _done(name: str, work: Callable[[], None]) -> int:
    """Do a work in its own process, and return that process's exit status."""
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        work()
    except TacitError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
