"""Tacit on NVFlare: the server runs the rounds, and clients only carry frames to their site's own process.

The frames are those that travel on Flower, byte for byte. A client's executor hands each to the socket that its own
operator names, and returns what the process there answers (``tacit site serve``, ``tacit holder serve``): NVFlare's
client never holds data or keys, and neither does code that a server ships to it.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from tacit.errors import TacitError
from tacit.flow import ClientId, Frames, Gather
from tacit.service import Message, call

if TYPE_CHECKING:
    from tacit.randomness import Randomness
    from tacit.runs.connection import Watch
    from tacit.runs.job import Job

SOCKET = "TACIT_SOCKET"  # the operator's word; {name} stands for the NVFlare client's name
_PAUSE = 0.02
_DEADLINE = 120.0  # seconds that a trip may take


class TacitExecutor(Executor):
    """Carries frames between NVFlare and the process at this site's socket."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Hand a request over, and return the reply."""
        socket = Path(os.environ[SOCKET].format(name=fl_ctx.get_identity_name()))
        try:
            reply = call(socket, Message(head=json.loads(shareable["head"]), body=shareable["frame"]))
        except TacitError as error:
            self.log_error(fl_ctx, str(error))
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        answer = Shareable()
        answer["frame"] = reply.body
        return answer


class TacitController(Controller):
    """Runs a run of Tacit's whose parties are NVFlare clients: site-0, site-1, ... and holder-1, ... for the key.

    Args:
        settings: the run's configuration, a file in the app's config folder.
    """

    def __init__(self, settings: str) -> None:
        super().__init__(task_check_period=_PAUSE)
        self._settings = settings

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is to be done before the rounds."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is to be done after them."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Leave a reply aside that came too late: its client has dropped out of the round."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the rounds."""
        from tacit.config.run_config import from_mapping, from_yaml
        from tacit.modes.catalogue import resolve
        from tacit.randomness import Randomness
        from tacit.runs import job as jobs
        from tacit.runs.observer import Lines
        from tacit.runs.run import execute

        folder = Path(fl_ctx.get_engine().get_workspace().get_app_config_dir(fl_ctx.get_job_id()))
        config = resolve(from_mapping(from_yaml(folder / self._settings)))
        randomness, observer = Randomness.of(seed=config.seed), Lines()
        connection = _Connection(_Engine(self, fl_ctx, abort_signal, config))
        result = execute(
            lambda: jobs.build(config, randomness, observer),
            randomness,
            config.out,
            observer,
            connect=lambda _: connection,
        )
        self.log_info(fl_ctx, f"test accuracy {result.test_accuracy:.3f}")


class _Engine:
    """Moves frames by NVFlare's tasks, one for each party."""

    name = "nvflare"

    def __init__(self, controller: TacitController, fl_ctx: FLContext, abort: Signal, config: Any) -> None:
        from tacit.parties.hello import Terms

        self._controller, self._fl_ctx, self._abort = controller, fl_ctx, abort
        self._head = {"run": secrets.randbits(62), "said": dict(Terms.of(config).to_record())}

    def exchange(self, requests: Frames) -> Frames:
        """Send every request to the client of its party; who does not answer has dropped out."""
        replies: dict[ClientId, bytes] = {}
        take = requests.receive if isinstance(requests, Gather) else replies.__setitem__
        tasks = {party: self._sent(party, frame, take) for party, frame in requests.items()}
        while any(task.completion_status is None for task in tasks.values()) and not self._abort.triggered:
            time.sleep(_PAUSE)
        return replies

    def _sent(self, party: ClientId, frame: bytes, take: Any) -> Task:
        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:  # noqa: ARG001 - NVFlare names it
            result = client_task.result
            if result.get_return_code() == ReturnCode.OK and isinstance(result.get("frame"), bytes):
                take(party, result["frame"])
            client_task.result = None  # not kept twice

        request = Shareable()
        request["head"] = json.dumps({**self._head, "party": party, "partition": max(party, 0)})
        request["frame"] = frame
        task = Task(name="tacit", data=request, timeout=int(_DEADLINE), result_received_cb=received)
        name = f"site-{party}" if party >= 0 else f"holder-{-party}"
        self._controller.send(task, self._fl_ctx, targets=[name])
        return task


class _Connection:
    """The way to the parties: they are there already, and stay."""

    name = "nvflare"

    def __init__(self, engine: _Engine) -> None:
        self._engine = engine

    @contextmanager
    def open(self, job: Job, randomness: Randomness, watch: Watch) -> Iterator[_Engine]:
        """Return the engine."""
        yield self._engine
