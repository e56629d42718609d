"""What others hand to Tacit is read, or refused with an error of Tacit's: a few thousand changed inputs per format.

``make fuzz`` goes on for as long as you like, and keeps what it finds in ``corpus/``, which is tried here each time.
"""

from __future__ import annotations

import itertools
import resource
import time

import pytest

from tacit.errors import WireError
from tests.fuzz.harness import CORPUS, Campaign, Target, corpus, inputs, tried
from tests.fuzz.targets import ALL

BY_NAME = pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)


@BY_NAME
def test_a_valid_input_is_read(target: Target) -> None:
    target.check(target.seeds()[0])


@BY_NAME
def test_what_once_escaped_is_refused_or_read(target: Target) -> None:
    assert [found for data in corpus(target) if (found := tried(target, data))] == []


@BY_NAME
def test_changed_inputs_are_refused_or_read(target: Target) -> None:
    some = itertools.islice(inputs(target, 1, [*target.seeds()]), target.inputs)
    assert [found for data in some if (found := tried(target, data))] == []


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= {target.name for target in ALL}
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert all(path.stat().st_size < 4096 for path in files)
    assert len(files) < 100


def _escapes(data: bytes) -> None:
    if b"?" in data:
        raise KeyError("an error of Python's own")
    raise WireError("refused")


def _dawdles(data: bytes) -> None:
    end = time.process_time() + (0.15 if len(data) == 1 else 60)
    while time.process_time() < end:
        pass


def _takes(data: bytes) -> None:
    pages = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 2) + (320 << 8)
    bytearray(pages << 12)[:: 1 << 12] = b"1" * pages


def test_the_harness_finds_what_it_is_there_for() -> None:
    def target(check: object, seconds: float = 0.1) -> Target:
        return Target(name="own", seeds=lambda: [b"abc"], check=check, seconds=seconds)  # type: ignore[arg-type]

    assert tried(target(_escapes, seconds=20.0), b"abc") is None  # threads and garbage of other tests count as ours
    assert str(tried(target(_escapes), b"?")).count("KeyError")
    assert str(tried(target(_dawdles), b"1")).count("seconds")
    assert str(tried(target(_dawdles), b"12")).count("more than 1 seconds")
    assert str(tried(target(_takes, seconds=20.0), b"")).count("MiB")
    campaign = Campaign(target=target(_escapes, seconds=20.0), seed=3)
    while not campaign.findings:  # within half a second, unless the machine is busy with other things
        campaign.run(0.5)
    assert [finding.what for finding in campaign.findings.values()] == ['KeyError: "an error of Python\'s own"']


def test_the_same_seed_gives_the_same_inputs() -> None:
    for target in ALL[:6]:
        first, second = ([*itertools.islice(inputs(target, 5, [*target.seeds()]), 50)] for _ in range(2))
        assert first == second
        assert len(set(first)) > 30
