"""Keys are made in one place: in one process, on Flower and by `tacit keys new` the same options do the same."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tacit
from tacit.config.run_config import RunConfig
from tacit.crypto import keyfile, paillier, threshold
from tacit.crypto.new_keys import KeyOptions, parse_shares
from tacit.errors import ConfigError
from tacit.flower import Private
from tacit.flower.simulation import Simulation
from tacit.flower.trial import prepare
from tacit.holder import settings as holder
from tacit.modes.catalogue import plan_of, resolve
from tacit.modes.estimate import estimate
from tacit.modes.keys import key_parties, secret_keys, write_keys
from tacit.protocols.paillier import Authority, PaillierSum
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.observer import Silent
from tacit.site.trial import Trial
from tests.cli.common_crypto import Tacit
from tests.flower.common import federation, quiet, start
from tests.runs.common import digits

SMALL: dict[str, Any] = {"bits": 512, "insecure_key_size": True}


@pytest.fixture
def tacit_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tacit:
    return Tacit(patch=monkeypatch, capture=capsys)


def _config(**settings: Any) -> RunConfig:
    return RunConfig.model_validate(
        {"mode": "paillier", "federate": {"clients": 3}, "paillier": {"keys": "threshold", **SMALL} | settings}
    )


IMPOSSIBLE = {
    "kind": ({"kind": "subgroup"}, "kind standard with half exponents, and kind subgroup with half"),
    "exponents": ({"exponents": "short"}, "and kind standard with short exponents was asked for"),
    "half": ({"shares": "2/4"}, "With 2 of 4 shares two groups of holders.*at least 3 of 4"),
    "one of two": ({"shares": "1/2"}, "With 1 of 2 shares two groups of holders.*at least 2 of 2"),
    "more than all": ({"shares": "4/3"}, "got threshold=4 of shares=3"),
    "too many": ({"shares": "60/101"}, "shares=101"),
    "length": ({"bits": 511}, "even key length"),
    "short": ({"insecure_key_size": False}, "512 bits is not secure"),
}


@pytest.mark.parametrize(("settings", "words"), IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_what_can_not_be_is_refused_everywhere_in_the_same_words(
    tacit_command: Tacit, tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    config = _config(**settings)
    chosen = config.paillier
    told = set()
    for way in (
        lambda: plan_of(resolve(config), 3),  # a run in one process, in a simulation, at a server and at each node
        lambda: secret_keys(chosen),
        lambda: write_keys(chosen, tmp_path / "simulation"),
        lambda: prepare(resolve(config), tmp_path / "trial", processes=1),
        lambda: estimate(config, parameters=10, clients=3),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            way()
        told.add(str(caught.value))
    options = ["--kind", chosen.kind, "--exponents", chosen.exponents, "--shares", chosen.shares]
    size = ["--bits", str(chosen.bits), *(["--insecure-key-size"] if chosen.insecure_key_size else [])]
    status, _, error = tacit_command("keys", "new", "paillier", *size, *options, "--out", tmp_path / "command")
    told.add(" ".join(error.split()).removeprefix("error: "))
    assert status != 0
    assert len(told) == 1, told
    assert not list(tmp_path.rglob("*.key"))


@pytest.mark.parametrize("text", ["3", "a/b", "-1/3", "3/", "/5", "3/5/7", " 3/5", "٣/٥", "3/99999"])
def test_shares_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Expected shares T/L such as 3/5"):
        parse_shares(text)


@pytest.mark.parametrize("keys", ["authority", "shared"])
def test_where_subgroup_keys_are_asked_for_subgroup_keys_are_made(tmp_path: Path, keys: str) -> None:
    settings = _config(keys=keys, kind="subgroup", bits=1024).paillier
    (key,) = secret_keys(settings)
    files = write_keys(settings, tmp_path)
    written = keyfile.load_private(files.secret[-1 if keys == "authority" else 0], insecure_key_size=True)
    for made in (key, written):
        assert isinstance(made, paillier.PrivateKey)
        assert (made.public.kind, made.public.bits) == ("subgroup", 1024)


def _in_process(config: RunConfig, folder: Path) -> Any:
    holder = key_parties(config.paillier, plan_of(resolve(config), 3).protocol, clients=3).holders[-1]
    assert isinstance(holder, Authority)
    return holder._private.public


def _in_simulation(config: RunConfig, folder: Path) -> Any:
    randomness = Randomness.of(seed=1)
    job = jobs.build(resolve(config), randomness, Silent())
    try:
        made = Simulation(job)._parties
        with made._open:
            return keyfile.read(made.folder / "private.key", insecure_key_size=True).public
    finally:
        job.close()


def _deployed(config: RunConfig, folder: Path) -> Any:
    prepare(resolve(config), folder, processes=1)
    pin = Trial.read(folder).pin
    assert pin is not None
    paths = (holder.Settings.read(folder / "holder-1").key, Path(pin))
    held, pinned = (keyfile.read(path, insecure_key_size=True).public for path in paths)
    assert held == pinned
    return held


def _wrapped(config: RunConfig, folder: Path) -> Any:
    settings = config.paillier.model_dump(exclude_unset=True)
    strategy = Private(quiet(), mode=config.mode, paillier={**settings, "weight_cap": 40})
    strategy.start(federation(3), start(), num_rounds=1)
    assert strategy._session is not None
    protocol = strategy._session._plan.protocol
    assert isinstance(protocol, PaillierSum)
    return protocol.public


WAYS = [_in_process, _in_simulation, _deployed, _wrapped]  # and the command: tests/cli/test_keys.py


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.parametrize(("kind", "exponents"), [("subgroup", "half"), ("standard", "short"), ("standard", "half")])
def test_wherever_a_run_lives_its_keys_are_of_the_kind_that_was_asked_for(
    way: Callable[[RunConfig, Path], Any], kind: str, exponents: str, tmp_path: Path
) -> None:
    """Review, 9: on Flower standard keys were made where subgroup keys were asked for, and the note said subgroup."""
    config = digits(
        mode="paillier",
        federate={"clients": 3},
        paillier={"kind": kind, "exponents": exponents, "bits": 1024, "insecure_key_size": True},
    )
    made = way(config, tmp_path)
    assert (made.kind, made.exponents, made.bits) == (kind, exponents, 1024)


def test_one_function_makes_keys() -> None:
    """Whoever makes keys asks KeyOptions, which has the kind: no other file has a way to leave it out."""
    root = Path(tacit.__file__).parent
    makers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("paillier.generate", "threshold.generate")
    }
    assert makers == {"crypto/new_keys.py"}


def test_the_shares_are_as_many_as_were_asked_for(tmp_path: Path) -> None:
    settings = _config(shares="2/3").paillier
    assert [share.index for share in secret_keys(settings) if isinstance(share, threshold.KeyShare)] == [1, 2, 3]
    files = write_keys(settings, tmp_path)
    assert files.secret == {-number: tmp_path / f"share-{number}.key" for number in (1, 2, 3)}
    named = settings.model_copy(update={"key": tmp_path})
    again = write_keys(named, tmp_path / "elsewhere")
    assert again.secret == files.secret
    assert again.public.read_text() == files.public.read_text()
    protocol = plan_of(resolve(_config(shares="2/3")), 3).protocol
    assert sorted(key_parties(named, protocol, clients=3).holders) == [-3, -2, -1]


def test_a_key_file_of_another_kind_than_was_asked_for_is_refused(tmp_path: Path) -> None:
    """A note in the report says what the keys rest on, by the settings: they have to be true of the file."""
    _, private = paillier.generate(bits=1024, kind="subgroup", insecure_key_size=True)
    keyfile.save(tmp_path / "private.key", private)
    settings = _config(keys="authority", bits=1024, key=tmp_path / "private.key").paillier
    for way in (lambda: secret_keys(settings), lambda: write_keys(settings, tmp_path / "elsewhere")):
        with pytest.raises(ConfigError, match=r"is of kind subgroup .*paillier\.kind=standard .*Set these"):
            way()
    assert secret_keys(settings.model_copy(update={"kind": "subgroup"})) == (private,)


def test_options_by_themselves() -> None:
    public, (private,) = KeyOptions(bits=512, insecure_key_size=True).make()
    assert isinstance(private, paillier.PrivateKey)
    assert private.public == public
    told: list[int] = []
    public, shares = KeyOptions(bits=256, shares=(2, 3), insecure_key_size=True).make(
        progress=lambda tested, _: told.append(tested)
    )
    assert isinstance(public, threshold.ThresholdPublic)
    assert len(shares) == 3
    assert told
