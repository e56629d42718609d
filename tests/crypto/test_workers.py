from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tacit.crypto import gmp, workers
from tacit.crypto.gmp import GmpRing
from tacit.crypto.ring import Rows, from_integers, random_below, to_integers
from tacit.crypto.workers import TableWorkers

MODULUS, BASE, BITS = (1 << 127) - 1, 3, 70
RING = GmpRing(MODULUS)


def own(exponents: Rows) -> Rows:
    """Compute with Python's integers what helpers compute with tables."""
    return from_integers([pow(BASE, exponent, MODULUS) for exponent in to_integers(exponents)], RING.width)


@pytest.fixture
def helpers() -> Iterator[TableWorkers]:
    made = TableWorkers(MODULUS, BASE, BITS, 2)
    yield made
    made.close()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
def test_helpers_compute_the_powers_in_order(helpers: TableWorkers, count: int) -> None:
    exponents = random_below(1 << BITS, count)
    for _ in range(2):  # they answer as often as they are asked
        assert np.array_equal(helpers.share(exponents, own), own(exponents))


def test_a_helper_computes_its_part_and_this_process_its_own(helpers: TableWorkers) -> None:
    computed: list[Rows] = []

    def counted(part: Rows) -> Rows:
        computed.append(part)
        return own(part)

    exponents = random_below(1 << BITS, 9)
    assert np.array_equal(helpers.share(exponents, counted), own(exponents))
    assert [len(part) for part in computed] == [3]
    assert np.array_equal(computed[0], exponents[:3])


def test_the_part_of_a_lost_helper_is_computed_here(helpers: TableWorkers) -> None:
    lost = helpers._helpers[0]
    lost.kill()
    lost.wait()
    exponents = random_below(1 << BITS, 9)
    for _ in range(2):
        assert np.array_equal(helpers.share(exponents, own), own(exponents))


def test_closing_ends_the_helpers() -> None:
    made = TableWorkers(MODULUS, BASE, BITS, 1)
    made.close()
    assert made._helpers[0].returncode == 0
    made.close()  # and once more is harmless


def test_helpers_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(1)")  # tests run in tmp_path
    made = TableWorkers(MODULUS, BASE, BITS, 1)
    exponents = random_below(1 << BITS, 4)
    computed: list[Rows] = []

    def counted(part: Rows) -> Rows:
        computed.append(part)
        return own(part)

    try:
        assert np.array_equal(made.share(exponents, counted), own(exponents))
    finally:
        made.close()
    assert len(computed) == 1  # the helper lives and did the other part


def test_a_large_job_of_a_table_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gmp, "_PROCESSES_FROM", 0.0)
    monkeypatch.setattr(gmp, "_WORTH_SENDING", 0.0)
    table, exponents = RING.table(BASE, bits=BITS), random_below(1 << BITS, 20)
    asked: list[int] = []
    share = TableWorkers.share

    def watched(helpers: TableWorkers, part: Rows, compute: Callable[[Rows], Rows]) -> Rows:
        asked.append(len(part))
        return share(helpers, part, compute)

    monkeypatch.setattr(TableWorkers, "share", watched)
    assert np.array_equal(table.powers(exponents, workers=2), own(exponents))
    assert asked == [20]
    assert np.array_equal(table.powers(exponents, workers=1), own(exponents))
    assert asked == [20]  # one worker is this process
    workers._kept.cache_clear()


def test_helpers_are_started_for_a_table_that_was_used_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gmp, "_WORTH_SENDING", 0.0)
    table, exponents = RING.table(BASE, bits=BITS), random_below(1 << BITS, 20)
    shared: list[int] = []

    def share(_: TableWorkers, part: Rows, compute: Callable[[Rows], Rows]) -> Rows:
        shared.append(len(part))
        return compute(part)

    monkeypatch.setattr(TableWorkers, "share", share)
    table.powers(exponents, workers=2)
    assert not shared
    monkeypatch.setattr(gmp, "_PROCESSES_FROM", table.work[0])  # this much was done before
    table.powers(exponents, workers=2)
    assert shared == [20]
    workers._kept.cache_clear()


def test_powers_aside_leave_all_work_to_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    table, exponents = RING.table(BASE, bits=BITS), random_below(1 << BITS, 20)
    here: list[int] = []
    compute = gmp.GmpTable._powers

    def watched(self: gmp.GmpTable, part: Rows) -> Rows:
        here.append(len(part))
        return compute(self, part)

    monkeypatch.setattr(gmp.GmpTable, "_powers", watched)
    assert np.array_equal(table.powers(exponents, aside=True), own(exponents))
    assert sum(here) == 0
    workers._kept.cache_clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_talk_to_its_parents_helpers() -> None:
    before = workers.table_workers(MODULUS, BASE, BITS, 0)
    assert workers.table_workers(MODULUS, BASE, BITS, 0) is before
    child = os.fork()
    if child == 0:
        os._exit(workers.table_workers(MODULUS, BASE, BITS, 0) is before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    workers._kept.cache_clear()
