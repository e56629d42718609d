"""The ledger for life: composed right, on disk before a reply, and closed to whoever changed it."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.accounting import accountant
from tacit.accounting import ledger as books
from tacit.accounting.events import GaussianEvent, PureEvent, RepeatedEvent, SampledEvent, SkellamEvent
from tacit.errors import StorageError
from tacit.parties.refusals import RefusalError
from tacit.site import ledger as ledgers
from tacit.site.contract import LEDGER, Budget, Contract, read
from tacit.site.costs import NO_NOISE, Price, composed
from tacit.site.ledger import Clock, Ledger, Release, totals, views
from tacit.wire import Failure, Turn
from tests.site.common import change, make_site

NOISE = 10.0


def _price(noise: float = NOISE, **more: Any) -> Price:
    event = GaussianEvent(noise_multiplier=noise)
    return Price(**{"nobody": event, "cohort": event, "server": event, **more})


def _release(run: str = "1", number: int = 1, price: Price | None = None) -> Release:
    return Release(run=run, turn=Turn(round_number=number), mode="local-dp", settings="abc", price=price or _price())


def _affordable(epsilon: float, noise: float = NOISE) -> int:
    """Return how many releases fit into a budget, by the accountant alone."""
    count = 0
    while True:
        event = RepeatedEvent(event=GaussianEvent(noise_multiplier=noise), count=count + 1)
        whole = books.Ledger(neighbours="replace-one").charged(event, round_number=1)
        if accountant.epsilon(whole, 1e-5).epsilon > epsilon:
            return count
        count += 1


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with a budget of 3."""
    return make_site(tmp_path, budget={"epsilon": 3.0})


def _contract(site: Path, **rules: Any) -> Contract:
    contract = read(site)
    return contract.model_copy(update={"rules": contract.rules.model_copy(update=rules)})


def _charge(site: Path, contract: Contract, *releases: Release, clock: Clock | None = None) -> list[float]:
    with Ledger.open(site / LEDGER, contract, clock=clock) as ledger:
        return [ledger.charge(release, contract) for release in releases]


def test_the_budget_is_for_life_over_runs_and_restarts(site: Path) -> None:
    contract, fits = read(site), _affordable(3.0)
    assert 3 <= fits < 50
    spent = [_charge(site, contract, _release(run=str(number)))[0] for number in range(fits)]
    assert spent == sorted(spent)
    assert spent[-1] <= 3.0
    with pytest.raises(RefusalError, match="the budget of these data is 3 for life") as refused:
        _charge(site, contract, _release(run="another"))
    assert refused.value.code is Failure.BUDGET
    with Ledger.open(site / LEDGER, contract) as ledger:
        assert len(ledger.rows()) == fits
        assert ledger.spent(contract) == pytest.approx(spent[-1])


def test_two_runs_at_once_spend_one_budget(site: Path) -> None:
    contract = read(site)
    charged: list[str] = []

    def spend(run: str) -> None:
        with Ledger.open(site / LEDGER, contract) as ledger, contextlib.suppress(RefusalError):
            for number in range(1, 1_000):
                ledger.charge(_release(run=run, number=number), contract)
                charged.append(run)

    threads = [threading.Thread(target=spend, args=(run,)) for run in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Ledger.open(site / LEDGER, contract) as ledger:
        assert len(ledger.rows()) == len(charged) == _affordable(3.0)


def test_a_ledger_that_another_charges_is_read_as_it_was_at_one_time(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = read(site)
    _charge(site, contract, _release(run="a"))
    others: list[threading.Thread] = []
    about = Ledger._about

    def late(own: Ledger) -> dict[str, str]:
        if not others:
            others.append(threading.Thread(target=_charge, args=(site, contract, _release(run="b"))))
            others[0].start()
            others[0].join(1.0)
        return about(own)

    with Ledger.open(site / LEDGER, contract) as ledger:
        monkeypatch.setattr(Ledger, "_about", late)
        assert [row.run for row in ledger.rows()] == ["a"]
        others[0].join()
        assert [row.run for row in ledger.rows()] == ["a", "b"]


def test_nobody_comes_between_the_look_at_what_was_spent_and_the_charge(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one charge asks for the time, which is after it has read the ledger, another one tries to get in."""
    contract = read(site)
    monkeypatch.setattr(ledgers, "_BUSY", 0.0)
    tried: list[bool] = []
    with Ledger.open(site / LEDGER, contract) as other:

        def meanwhile() -> float:
            if not tried:
                tried.append(True)
                with pytest.raises(StorageError, match="database is locked"):
                    other.charge(_release(run="b"), contract)
            return 1e9

        _charge(site, contract, _release(run="a"), clock=Clock(wall=meanwhile))
        assert [row.run for row in other.rows()] == ["a"]
    assert tried


_MANY = """
import sys
from pathlib import Path
from tacit.accounting.events import GaussianEvent
from tacit.site.contract import LEDGER, read
from tacit.site.costs import Price
from tacit.site.ledger import Ledger, Release
from tacit.wire import Turn
site = Path(sys.argv[1])
contract = read(site)
price = Price(**dict.fromkeys(("nobody", "cohort", "server"), GaussianEvent(noise_multiplier=10.0)))
with Ledger.open(site / LEDGER, contract) as ledger:
    for number in range(1, 1000):
        release = Release(run="1", turn=Turn(round_number=number), mode="local-dp", settings="", price=price)
        ledger.charge(release, contract)
        print("charged", flush=True)  # here a reply would leave
"""


def test_a_kill_never_counts_too_little(tmp_path: Path) -> None:
    site = make_site(tmp_path, budget={"epsilon": 1_000.0})
    with subprocess.Popen([sys.executable, "-c", _MANY, str(site)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        heard = [process.stdout.readline() for _ in range(5)]
        process.kill()
        heard += process.communicate()[0].splitlines()
    replies = sum(line.strip() == "charged" for line in heard)
    with Ledger.open(site / LEDGER, read(site)) as ledger:
        assert 5 <= replies <= len(ledger.rows()) <= replies + 1


def test_books_of_different_units_add_up_with_delta_shared(site: Path) -> None:
    rows = Budget(epsilon=8.0, unit="example")
    step = SampledEvent(event=GaussianEvent(noise_multiplier=2.0), rate=0.1)
    by_row = _price(example=RepeatedEvent(event=step, count=10))
    skellam = SkellamEvent(noise_multiplier=20.0, sensitivity=1e5)
    counted = replace(_price(), nobody=skellam)
    alone = [
        composed([(price, 2)], rows.model_copy(update={"delta": 1e-5 / 3})) for price in (by_row, counted, _price())
    ]
    assert composed([(by_row, 2), (counted, 2), (_price(), 2)], rows) == pytest.approx(sum(alone))
    site_level = rows.model_copy(update={"unit": "client"})
    assert composed([(by_row, 1)], site_level) == composed([(_price(), 1)], site_level)  # DP-SGD hides no site


def test_whom_one_trusts_decides_what_the_past_costs(site: Path) -> None:
    contract = read(site)
    trusting = contract.model_copy(update={"budget": contract.budget.model_copy(update={"trust": "server"})})
    central = _price(nobody=NO_NOISE, cohort=NO_NOISE)
    _charge(site, trusting, _release(price=central))
    with Ledger.open(site / LEDGER, contract) as ledger:
        found = views(ledger.rows(), contract)
        assert found["nobody"] == found["cohort"] == float("inf")
        assert 0 < found["server"] < 3
        assert totals(ledger.rows(), trusting) == {"1": pytest.approx(found["server"])}
    with pytest.raises(RefusalError, match="epsilon to inf"):
        _charge(site, contract, _release())  # nobody is trusted any more, and what left has left


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"rounds": 2}, "2 rounds of run 1 were answered"),
        ({"rounds_per_day": 2}, "2 rounds were answered in 24 hours, and rounds_per_day=2"),
        ({"rounds_apart": 3}, "rounds_apart=3"),
        ({"seconds_apart": 100.0}, "seconds_apart=100"),
    ],
)
def test_rounds_have_their_limits(site: Path, rules: dict[str, Any], words: str) -> None:
    numbers = iter((1, 5, 6))
    with pytest.raises(RefusalError, match=words) as refused:
        _charge(site, _contract(site, **rules), *(_release(number=number) for number in numbers))
    assert refused.value.code is Failure.CONTRACT


class _Hands:
    """Clocks whose hands a test moves."""

    def __init__(self) -> None:
        self.wall, self.up, self.boot = 1_000_000.0, 500.0, "boot"

    def clock(self) -> Clock:
        return Clock(wall=lambda: self.wall, up=lambda: self.up, boot=lambda: self.boot)


def test_a_day_is_a_day_by_both_clocks(site: Path) -> None:
    contract, hands = _contract(site, rounds_per_day=1), _Hands()
    _charge(site, contract, _release(run="a"), clock=hands.clock())
    hands.wall += 25 * 3600
    with pytest.raises(RefusalError, match="set forward by 90000 s"):
        _charge(site, contract, _release(run="b"), clock=hands.clock())
    hands.up += 25 * 3600
    _charge(site, contract, _release(run="b"), clock=hands.clock())
    hands.wall -= 3600
    with pytest.raises(RefusalError, match="went back by 3600 s"):
        _charge(site, contract, _release(run="c"), clock=hands.clock())
    hands.boot, hands.up = "another", 1.0  # a machine that was off, with a clock that is behind
    with pytest.raises(RefusalError, match="went back by 3600 s"):
        _charge(site, contract, _release(run="c"), clock=hands.clock())
    hands.wall += 3600 + 25 * 3600
    _charge(site, contract, _release(run="c"), clock=hands.clock())


def test_rounds_can_be_further_apart_than_a_day(site: Path) -> None:
    contract, hands = _contract(site, seconds_apart=7 * 86_400.0), _Hands()
    _charge(site, contract, _release(number=1), clock=hands.clock())
    hands.up, hands.wall = hands.up + 6 * 86_400.0, hands.wall + 6 * 86_400.0
    with pytest.raises(RefusalError, match="the last round was 518400 s ago, seconds_apart=604800"):
        _charge(site, contract, _release(number=2), clock=hands.clock())
    hands.up, hands.wall = hands.up + 86_400.0, hands.wall + 86_400.0
    _charge(site, contract, _release(number=2), clock=hands.clock())


def test_a_clock_that_is_pushed_a_little_at_every_release_wins_nothing(site: Path) -> None:
    contract, hands = _contract(site, seconds_apart=100.0), _Hands()
    _charge(site, contract, _release(number=1), clock=hands.clock())
    for step in range(2, 5):
        hands.up += 99.0
        hands.wall += 99.0 + 25.0
        with pytest.raises(RefusalError, match="the last round was 99 s ago"):
            _charge(site, contract, _release(number=step), clock=hands.clock())
        hands.up += 1.0
        hands.wall += 1.0
        _charge(site, contract, _release(number=step), clock=hands.clock())


def _execute(site: Path, *statements: str) -> None:
    with sqlite3.connect(site / LEDGER) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["UPDATE releases SET round = 7 WHERE number = 2"], "Release 2 .* is not the one"),
        (["DELETE FROM releases WHERE number = 2"], "Release 2 .* is not the one"),
        (["DELETE FROM releases WHERE number = 3"], "The last releases .* are missing"),
        (["UPDATE releases SET price = '{}' WHERE number = 3"], "Release 3 .* is not the one"),
        (["UPDATE about SET value = '9' WHERE key = 'version'"], "a ledger of version 9, expected 1"),
        (["DROP TABLE releases"], "Can't use the ledger"),
    ],
    ids=["changed", "lost", "cut", "cheaper", "version", "table"],
)
def test_a_ledger_that_was_changed_is_refused(site: Path, statements: list[str], words: str) -> None:
    contract = read(site)
    _charge(site, contract, *(_release(number=number) for number in (1, 2, 3)))
    _execute(site, *statements)
    with pytest.raises(StorageError, match=words), Ledger.open(site / LEDGER, contract) as ledger:
        ledger.rows()


def test_a_ledger_that_is_garbage_or_gone_is_refused_and_never_begun_anew(site: Path) -> None:
    contract = read(site)
    path = site / LEDGER
    _charge(site, contract, _release())
    whole = path.read_bytes()
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match="damaged"), Ledger.open(path, contract):
        pass
    path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    with pytest.raises(StorageError, match=r"damaged|Can't use|missing"), Ledger.open(path, contract):
        pass
    path.unlink()
    with pytest.raises(StorageError, match="There is no ledger"), Ledger.open(path, contract):
        pass
    assert not path.exists()


def test_a_full_disk_is_no_permission(site: Path) -> None:
    contract = read(site)
    charged: list[float] = []

    def spend() -> None:
        releases = (_release(number=number, price=_price(1_000.0)) for number in range(1, 100))
        charged.extend(ledger.charge(release, contract) for release in releases)

    with Ledger.open(site / LEDGER, contract) as ledger:
        (pages,) = ledger._connection.execute("PRAGMA page_count").fetchone()
        ledger._connection.execute(f"PRAGMA max_page_count={pages}")  # as SQLite tells a full disk
        with pytest.raises(StorageError, match=r"full.*Nothing was released"):
            spend()
        assert len(ledger.rows()) == len(charged)
    with Ledger.open(site / LEDGER, contract) as ledger:
        assert len(ledger.rows()) == len(charged)


def test_a_row_that_changes_while_the_ledger_is_open_is_seen_when_it_is_opened_again(site: Path) -> None:
    contract = read(site)
    with Ledger.open(site / LEDGER, contract) as ledger:
        ledger.charge(_release(number=1), contract)
        _charge(site, contract, _release(number=2))  # another process
        assert [row.round for row in ledger.rows()] == [1, 2]
        _execute(site, "DELETE FROM releases WHERE number = 2")
        with pytest.raises(StorageError, match="are missing"):
            ledger.charge(_release(number=3), contract)


def test_a_contract_that_contradicts_the_ledger_is_refused(site: Path) -> None:
    change(site, "name: heart.csv", "name: other.csv")
    with pytest.raises(StorageError, match=r"about data 'heart.csv', and site.yaml says 'other.csv'"):
        _charge(site, read(site), _release())


def test_what_can_not_be_added_up_is_no_permission(site: Path) -> None:
    contract = read(site)
    mixed = SampledEvent(event=GaussianEvent(noise_multiplier=1.0), rate=0.5, sampling="fixed")
    prices = [_price(), _price(nobody=PureEvent(epsilon=0.1)), _price(nobody=mixed)]
    for number, price in enumerate(itertools.islice(prices, 3)):
        try:
            _charge(site, contract, _release(run=str(number), price=price))
        except (StorageError, RefusalError):
            return
    with Ledger.open(site / LEDGER, contract) as ledger:
        assert ledger.spent(contract) <= 3.0
