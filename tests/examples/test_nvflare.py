"""examples/nvflare without NVFlare, which is not among the packages of the tests: its few classes are stood in for.

The run through NVFlare's own simulator is `python examples/nvflare/run.py`, and docs/nvflare.md has its output.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tacit.flow import Gather
from tacit.service import Message, Service

FOLDER = Path(__file__).parents[2] / "examples" / "nvflare"


class Shareable(dict[str, Any]):
    """NVFlare's dictionary, with a return code."""

    def get_return_code(self) -> str:
        return str(self.get("code", "OK"))


class Task:
    """What NVFlare keeps of a task."""

    def __init__(self, *, name: str, data: Shareable, timeout: int, result_received_cb: Any) -> None:
        self.name, self.data, self.timeout, self.received = name, data, timeout, result_received_cb
        self.completion_status: str | None = None


class Component:
    """A controller, or an executor."""

    def __init__(self, **_: Any) -> None:
        self.errors: list[str] = []

    def log_error(self, _: Any, text: str) -> None:
        self.errors.append(text)


STANDS_IN: dict[str, dict[str, Any]] = {
    "client": {"Client": object},
    "controller_spec": {"ClientTask": SimpleNamespace, "Task": Task},
    "executor": {"Executor": Component},
    "fl_constant": {"ReturnCode": SimpleNamespace(OK="OK", EXECUTION_EXCEPTION="EXECUTION_EXCEPTION")},
    "fl_context": {"FLContext": object},
    "impl.controller": {"Controller": Component},
    "shareable": {"Shareable": Shareable, "make_reply": lambda code: Shareable(code=code)},
    "signal": {"Signal": object},
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example's module."""
    for name, contents in {"": {}, "impl": {}, **STANDS_IN}.items():
        made = ModuleType("nvflare.apis")
        made.__dict__.update(contents, __path__=[])
        monkeypatch.setitem(sys.modules, f"nvflare.apis.{name}".rstrip("."), made)
    monkeypatch.setitem(sys.modules, "nvflare", ModuleType("nvflare"))
    found = importlib.util.spec_from_file_location("tacit_nvflare", FOLDER / "job/app/custom/tacit_nvflare.py")
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Message]]:
    """Return what the process of site-1 and holder-1 was asked; it answers with the frame in capitals."""
    heard: list[Message] = []

    def answer(request: Message) -> Message:
        heard.append(request)
        return Message(body=request.body.upper())

    services = [Service(path=tmp_path / name / "socket", answer=answer) for name in ("site-1", "holder-1")]
    monkeypatch.setenv("TACIT_SOCKET", str(tmp_path / "{name}" / "socket"))
    threads = [threading.Thread(target=service.run) for service in services]
    with services[0], services[1]:
        for thread in threads:
            thread.start()
        yield heard
        for service, thread in zip(services, threads, strict=True):
            service.stop()
            thread.join()


def _engine(module: Any, executor: Any) -> Any:
    """Return the example's engine, whose controller hands each task to the executor of its client at once."""

    def send(task: Task, _: Any, *, targets: list[str]) -> None:
        context = SimpleNamespace(get_identity_name=lambda: targets[0])
        result = executor.execute(task.name, task.data, context, None)
        task.received(SimpleNamespace(result=result), None)
        task.completion_status = "OK"

    engine = module._Engine.__new__(module._Engine)
    engine._controller, engine._fl_ctx = SimpleNamespace(send=send), None
    engine._abort = SimpleNamespace(triggered=False)
    engine._head = {"run": 7, "said": {"version": "1"}}
    return engine


def test_frames_are_carried_to_the_sockets_of_their_parties_and_back(module: Any, asked: list[Message]) -> None:
    executor = module.TacitExecutor()
    engine = _engine(module, executor)
    assert engine.exchange({1: b"a frame", -1: b"for the holder"}) == {1: b"A FRAME", -1: b"FOR THE HOLDER"}
    assert [(one.head["party"], one.head["run"]) for one in asked] == [(1, 7), (-1, 7)]
    gathered: dict[int, bytes] = {}
    assert engine.exchange(Gather({1: b"one by one"}, gathered.__setitem__)) == {}
    assert gathered == {1: b"ONE BY ONE"}


@pytest.mark.usefixtures("asked")
def test_a_client_whose_process_does_not_answer_has_dropped_out(module: Any) -> None:
    executor = module.TacitExecutor()
    assert _engine(module, executor).exchange({4: b"nobody", 1: b"is there"}) == {1: b"IS THERE"}
    assert "No service answers at" in executor.errors[0]


def test_the_job_names_what_the_module_has(module: Any) -> None:
    for side, place in (("server", ("workflows", "path")), ("client", ("executors", "executor"))):
        config = json.loads((FOLDER / f"job/app/config/config_fed_{side}.json").read_text())
        (part,) = config[place[0]]
        path = part["path"] if side == "server" else part["executor"]["path"]
        assert hasattr(module, path.removeprefix("tacit_nvflare."))
