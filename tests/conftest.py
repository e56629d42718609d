from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Nothing timed is asserted: a busy machine is no bug. Examples are the same each time, so that a green tree stays
# green; with TACIT_LONG new ones are looked for.
settings.register_profile("tacit", deadline=None, derandomize="TACIT_LONG" not in os.environ)
settings.load_profile("tacit")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: threads inside an operation only wait for each other
os.environ.setdefault("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", "100000000")  # not a third of the machine's

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of what a shell started in the background: tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).parents[2] / "shared" / "data"
VECTORS = Path(__file__).parents[2] / "shared" / "vectors" / "dp.json"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


gc.disable()  # while tests are collected: all that is made then stays, and to look through it takes half of the time


def pytest_collection_finish() -> None:
    """Collect garbage from now on, of what tests make."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep in one process what shares a fixture that is made once per module, and the cases of one function.

    Groups that tests name themselves come first: they take long, and nobody should wait for one in the end.
    """
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
    numbers: dict[str, int] = {}
    for item in items:
        if item.get_closest_marker("xdist_group") is None and isinstance(item, pytest.Function):
            shared = any(found[-1].scope == "module" for found in item._fixtureinfo.name2fixturedefs.values())
            together = item.nodeid.partition("::" if shared else "[")[0]
            item.add_marker(pytest.mark.xdist_group(str(numbers.setdefault(together, len(numbers)))))


@pytest.fixture(scope="session")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which tests work that have none of their own."""
    return tmp_path_factory.mktemp("nowhere")


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, nowhere: Path) -> Iterator[None]:
    """Keep every test away from the user's folders and from what other tests drew.

    It works in a folder of its own, or in one where it may leave nothing: to make one takes longer than most of the
    tests that need none. Its numbers are the same whatever ran before it, but for those of the operating system.
    """
    random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
    folder: Path = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else nowhere
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setenv("TACIT_CACHE", str(folder / "lonely-cache"))
    monkeypatch.setenv("FLWR_HOME", str(folder / "lonely-flower"))
    monkeypatch.chdir(folder)
    yield
    if left := sorted(path.name for path in nowhere.iterdir()):
        shutil.rmtree(nowhere)
        nowhere.mkdir()
        pytest.fail(f"The test has left {left} in its working folder: let it ask for tmp_path.")


@pytest.fixture
def lonely(tmp_path: Path) -> Path:
    """Return the cache that a test has instead of the user's."""
    return tmp_path / "lonely-cache"


@pytest.fixture(scope="session", autouse=True)
def _commands() -> Iterator[None]:
    """Put the tree of commands together once per process: Typer does so in each call, which takes most of it."""
    from typer import main, testing

    made = cache(main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "get_command", made)
        patch.setattr(testing, "_get_command", made)
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real data beside the checkout."""
    if not (SHARED / "mnist").is_dir():
        pytest.skip("the folder of real data is not beside the checkout")
    return SHARED


@pytest.fixture(scope="session")
def debian() -> Path:
    """Return the folder of Debian's package."""
    if not DEBIAN.is_dir():
        pytest.skip("Debian's dataset-fashion-mnist is not installed")
    return DEBIAN


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    """Return the known answers beside the checkout; the tests hold the most telling ones themselves."""
    if not VECTORS.is_file():
        pytest.skip("the folder of known answers is not beside the checkout")
    answers: dict[str, Any] = json.loads(VECTORS.read_text())
    return answers
