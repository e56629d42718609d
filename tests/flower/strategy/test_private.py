"""The strategy and the mod together, over a Grid in memory: Flower's strategies, Flower's ClientApp, real frames."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.serverapp import strategy as strategies
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi, Strategy
from scipy import optimize, stats

from tacit import wire
from tacit.accounting import accountant
from tacit.accounting.events import GaussianEvent, RepeatedEvent
from tacit.accounting.ledger import Ledger
from tacit.errors import BudgetError, ConfigError, DropoutError, RunError
from tacit.federated.plan import Privacy
from tacit.flower import Private, envelope, private_mod
from tacit.mechanisms.heterogeneous import variance_minimal
from tacit.parties.hello import IN_APP
from tacit.runs.ledger import ledger_of
from tests.flower.common import (
    FEW_BITS,
    app,
    examples,
    federation,
    floats,
    mean_shift,
    quiet,
    start,
)


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)  # so that caplog hears it


ENCRYPTED: dict[str, Any] = {"weight_cap": 40, **FEW_BITS}


@pytest.mark.parametrize(
    "make",
    [
        FedAvg,
        lambda: FedAvgM(server_momentum=0.9, server_learning_rate=0.5),
        FedAdam,
        FedYogi,
        FedAdagrad,
        lambda: FedProx(proximal_mu=0.1),
    ],
)
def test_a_strategy_takes_the_same_step_as_without_the_wrapper(make: Callable[[], Strategy]) -> None:
    alone = make().start(federation(client_app=app()), start(), num_rounds=3)
    wrapped = Private(make(), mode="plain").start(federation(), start(), num_rounds=3)
    np.testing.assert_allclose(floats(wrapped.arrays), floats(alone.arrays), rtol=2e-4, atol=1e-6)
    assert np.abs(floats(wrapped.arrays) - floats(start())).min() > 1e-3
    assert wrapped.arrays["seen"] == start()["seen"], "counters stay as they were sent"
    assert [array.dtype for array in wrapped.arrays.values()] == ["float32", "float64", "int64"]


@pytest.mark.parametrize("keys", ["authority", "threshold", "shared"])
def test_an_encrypted_mean_is_the_plain_one_within_its_rounding(keys: str) -> None:
    plain = Private(quiet(), mode="plain").start(federation(), start(), num_rounds=2)
    encrypted = Private(quiet(), mode="paillier", paillier={**ENCRYPTED, "keys": keys})
    result = encrypted.start(federation(), start(), num_rounds=2)
    np.testing.assert_allclose(floats(result.arrays), floats(plain.arrays), rtol=0, atol=4 * 2.0**-23)
    assert encrypted.privacy is None


@pytest.mark.parametrize("signed", [False, True])
def test_a_masked_mean_is_the_plain_one_within_its_rounding(signed: bool) -> None:
    plain = Private(quiet(), mode="plain").start(federation(), start(), num_rounds=2)
    masked = Private(quiet(), mode="masks", masks={"signed": signed, "weight_cap": 40})
    grid = federation()
    result = masked.start(grid, start(), num_rounds=2)
    np.testing.assert_allclose(floats(result.arrays), floats(plain.arrays), rtol=0, atol=4 * 2.0**-23)
    assert masked.privacy is None
    kinds = [envelope.frame_of(answer)[4] for answer in grid.answers]  # four greetings and enrolments, then two rounds
    assert kinds[:8] == [9] * 4 + [10] * 4
    assert kinds[8:] == ([12] * 4 + [13] * 4 + [14] * 4 * signed + [15] * 4) * 2


@pytest.mark.parametrize("lost", [wire.Kind.SHARE, wire.Kind.TASK, wire.Kind.LIST, wire.Kind.REVEAL])
def test_under_masks_a_node_may_die_at_any_message(lost: wire.Kind) -> None:
    grid = federation(5)

    def dying(answer: Message) -> Message:
        kind = wire.unpack(envelope.frame_of(answer)).kind
        if answer.metadata.src_node_id == 103 and kind is (wire.Kind.MASKED if lost is wire.Kind.TASK else lost):
            grid.dead = {103}
            return Message(Error(code=8, reason="the app crashed"), reply_to=grid.sent[-1])
        return answer

    grid.tamper = dying
    wrapped = Private(quiet(), mode="masks", federate={"minimum_clients": 4}, masks={"value_bits": 30})
    result = wrapped.start(grid, start(), num_rounds=1)
    counted = [0, 1, 3, 4] if lost in (wire.Kind.SHARE, wire.Kind.TASK) else [0, 1, 2, 3, 4]
    assert floats(result.arrays) - floats(start()) == pytest.approx(mean_shift(counted, 1), rel=1e-4)


def test_under_masks_too_few_shares_lose_the_round_and_keep_the_model(tmp_path: Path) -> None:
    grid = federation()
    wrapped = Private(quiet(), mode="masks", federate={"rounds": 2, "retries": 1}, out=tmp_path)

    def dying(answer: Message) -> Message:
        if wire.unpack(envelope.frame_of(answer)).kind is wire.Kind.ENROL:
            grid.dead = {102, 103, 104}
        return answer

    grid.tamper = dying
    assert wrapped.configure_train(1, start(), ConfigRecord(), grid) == []
    assert wrapped.aggregate_train(1, []) == (None, None)
    assert [record["round"] for record in _records(tmp_path) if record["type"] == "failed"] == [1]


def test_numbers_beyond_the_range_of_encryption_are_cut_off_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    wrapped = Private(quiet(), mode="paillier", paillier={**ENCRYPTED, "clip": 0.03})
    with caplog.at_level(logging.WARNING, "flwr"):
        result = wrapped.start(federation(), start(), num_rounds=1)
    cut = np.average([0.011, 0.021, 0.03, 0.03], weights=[10, 20, 30, 40])
    np.testing.assert_allclose(floats(result.arrays) - floats(start()), cut, rtol=1e-4)
    assert "28 numbers of the updates were beyond paillier.clip=0.03" in caplog.text


def test_uniform_weights() -> None:
    wrapped = Private(quiet(), mode="paillier", paillier=FEW_BITS, federate={"weighting": "uniform"})
    result = wrapped.start(federation(), start(), num_rounds=1)
    np.testing.assert_allclose(floats(result.arrays) - floats(start()), mean_shift(range(4), 1, weighted=False), 1e-4)


def _still(count: int) -> Any:
    """Return a federation whose clients change nothing, so that what comes out is the noise."""
    sent = ArrayRecord({"a": Array(np.zeros(count, np.float32))})
    return federation(client_app=app(private_mod, change=lambda _: sent)), sent


@pytest.mark.parametrize(("mode", "deviation"), [("dp", 2.0 * 0.5 / 4), ("local-dp", 2.0 * 0.5 / 2)])
def test_noise_has_the_scale_that_is_charged(mode: str, deviation: float) -> None:
    grid, sent = _still(20_000)
    wrapped = Private(quiet(), mode=mode, dp={"noise": 2.0, "clip": 0.5}, seed=3)
    released = wrapped.start(grid, sent, num_rounds=1).arrays["a"].numpy()
    assert stats.kstest(released, "norm", (0, deviation)).pvalue > 0.01
    for wrong in (0.9, 1.1):
        assert stats.kstest(released, "norm", (0, wrong * deviation)).pvalue < 1e-6


def test_noise_under_encryption_has_at_least_the_scale_that_is_charged() -> None:
    grid, sent = _still(12_000)
    wrapped = Private(
        quiet(),
        mode="paillier",
        paillier={"dp": True, **FEW_BITS},
        dp={"noise": 2.0, "clip": 0.5},
        federate={"minimum_clients": 4},
        seed=3,
    )
    released = wrapped.start(grid, sent, num_rounds=1).arrays["a"].numpy()
    assert stats.kstest(released, "norm", (0, 0.25)).pvalue > 0.01
    assert stats.kstest(released, "norm", (0, 0.225)).pvalue < 1e-6
    assert _claimed(wrapped).against.startswith("the server")


def test_layers_have_their_own_noise_where_it_is_shared_by_them() -> None:
    sizes, bounds = (12_000, 300), (0.5 / 2**0.5,) * 2
    sent = ArrayRecord({name: Array(np.zeros(size, np.float32)) for name, size in zip("ab", sizes, strict=True)})
    grid = federation(client_app=app(private_mod, change=lambda _: sent))
    dp = {"noise": 2.0, "clip": 0.5, "per_layer": True, "noise_split": "variance-minimal"}
    released = Private(quiet(), mode="dp", dp=dp, seed=3).start(grid, sent, num_rounds=1).arrays
    shared = variance_minimal(sizes, bounds)
    for name, std in zip("ab", shared.stds(2.0 * shared.whitened_sensitivity(bounds)), strict=True):
        assert stats.kstest(released[name].numpy(), "norm", (0, std / 4)).pvalue > 0.01


def test_an_update_is_clipped_before_it_counts() -> None:
    far = ArrayRecord({"weight": start()["weight"], "bias": Array(np.array([1e6, 0.0])), "seen": start()["seen"]})
    grid = federation(client_app=app(private_mod, change=lambda _: far))
    wrapped = Private(quiet(), mode="dp", dp={"noise": 0.0, "clip": 0.5})
    moved = floats(wrapped.start(grid, start(), num_rounds=1).arrays) - floats(start())
    assert np.linalg.norm(moved) == pytest.approx(0.5, rel=1e-4)
    assert np.linalg.norm(moved) <= 0.5
    assert _claimed(wrapped).epsilon == math.inf, "there was no noise"


def test_what_it_cost_is_told_each_round() -> None:
    wrapped = Private(quiet(), mode="dp", dp={"noise": 1.5, "delta": 1e-4})
    result = wrapped.start(federation(), start(), num_rounds=3)
    spent = Ledger().charged(RepeatedEvent(event=GaussianEvent(noise_multiplier=1.5), count=3), round_number=3)
    expected = accountant.epsilon(spent, 1e-4).epsilon
    privacy = _claimed(wrapped)
    assert privacy.epsilon == pytest.approx(expected, rel=1e-6)
    assert (privacy.delta, privacy.unit, privacy.neighbours) == (1e-4, "client", "add-remove")
    assert any("no amplification" in note for note in privacy.notes)
    told = [result.train_metrics_clientapp[number]["epsilon"] for number in (1, 2, 3)]
    assert told == sorted(told)
    assert told[-1] == privacy.epsilon


def test_a_calibrated_budget_is_for_the_rounds_that_are_run() -> None:
    wrapped = Private(quiet(), mode="local-dp", dp={"epsilon": 5.0})
    wrapped.start(federation(), start(), num_rounds=4)
    spent = _claimed(wrapped).epsilon
    assert 4.95 < spent <= 5.0


def _half(**dp: Any) -> Private:
    return Private(FedAvg(fraction_train=0.5, fraction_evaluate=0), mode="dp", dp={"noise": 1.0, **dp})


def _true_epsilon(delta: float) -> float:
    """Return epsilon of half the clients, z = 1, all at -C but one at C or -C: (N(0,1) + N(2,1))/2 against N(0,1)."""

    def found(epsilon: float) -> float:
        # The likelihood ratio rises, so that the best test is a threshold.
        at = optimize.brentq(lambda x: np.log(0.5 + 0.5 * np.exp(2 * x - 2)) - epsilon, -5, 60)
        hit = 0.5 * stats.norm.sf(at) + 0.5 * stats.norm.sf(at - 2)
        return float(hit - np.exp(epsilon) * stats.norm.sf(at) - delta)

    return float(optimize.brentq(found, 0.1, 40))


@pytest.mark.parametrize(("delta", "before", "least"), [(1e-5, 4.377, 8.98), (1e-3, 3.14, 3.66), (1e-2, 2.32, 3.27)])
def test_epsilon_of_a_part_of_the_clients_is_not_below_the_truth(delta: float, before: float, least: float) -> None:
    half = _half(delta=delta)
    half.start(federation(10), start(), num_rounds=1)
    truth = _true_epsilon(delta)  # for a choice that nobody knows
    assert truth >= least - 0.01
    assert before < least, "what was claimed once: everyone's, add-remove"
    spent = _claimed(half).epsilon
    assert spent >= truth
    # The choice is by a generator that is no secret: whoever knows it sees N(2, 1) against N(0, 1).
    known = optimize.brentq(lambda e: stats.norm.sf(e / 2 - 1) - np.exp(e) * stats.norm.sf(e / 2 + 1) - delta, 0.1, 40)
    assert spent == pytest.approx(known, rel=1e-6)
    assert _claimed(half).neighbours == "replace-one"
    assert any("another is not" in note for note in _claimed(half).notes)


def test_no_amplification_is_claimed_for_a_part_of_the_clients() -> None:
    half = _half()
    half.start(federation(), start(), num_rounds=2)
    everyone = Private(quiet(), mode="dp", dp={"noise": 1.0, "neighbours": "replace-one"})
    everyone.start(federation(), start(), num_rounds=2)
    assert _claimed(half).epsilon == _claimed(everyone).epsilon


def test_a_budget_for_a_part_of_the_clients_is_calibrated_by_the_same_relation() -> None:
    half = Private(FedAvg(fraction_train=0.5, fraction_evaluate=0), mode="dp", dp={"epsilon": 5.0})
    half.start(federation(), start(), num_rounds=2)
    assert _claimed(half).neighbours == "replace-one"
    assert 4.95 < _claimed(half).epsilon <= 5.0


def test_a_relation_that_does_not_hold_for_a_part_of_the_clients_is_refused() -> None:
    grid = federation()
    with pytest.raises(ConfigError, match="add-remove does not hold where a round asks a part"):
        _half(neighbours="add-remove").start(grid, start(), num_rounds=1)
    tasks = [message for message in grid.sent if len(message.content) > 2]
    assert not tasks, "greetings at most"


def test_what_a_client_contributed_can_be_all_that_is_hidden() -> None:
    half = _half(neighbours="zero-out")
    half.start(federation(), start(), num_rounds=2)
    everyone = Private(quiet(), mode="dp", dp={"noise": 1.0})
    everyone.start(federation(), start(), num_rounds=2)
    assert (_claimed(half).neighbours, _claimed(everyone).neighbours) == ("zero-out", "add-remove")
    assert _claimed(half).epsilon == _claimed(everyone).epsilon


class _Lazy(FedAvg):
    """Asks everyone in the first round, and leaves one out from then on."""

    def configure_train(self, server_round: int, *given: Any) -> list[Message]:
        messages = list(super().configure_train(server_round, *given))
        return messages if server_round == 1 else messages[1:]


def test_a_round_that_leaves_somebody_out_is_refused_where_epsilon_was_for_everyone() -> None:
    grid = federation()
    wrapped = Private(_Lazy(fraction_evaluate=0), mode="dp", dp={"noise": 1.5})
    with pytest.raises(RunError, match=r"leaves out 1 of the 4 clients that are there.*replace-one"):
        wrapped.start(grid, start(), num_rounds=2)
    assert len(grid.sent) == 8, "greetings, and tasks of the first round"
    spent = _claimed(wrapped).epsilon
    relaxed = Private(_Lazy(fraction_evaluate=0), mode="dp", dp={"noise": 1.5, "neighbours": "replace-one"})
    relaxed.start(federation(), start(), num_rounds=2)
    assert _claimed(relaxed).epsilon > 2 * spent


def test_the_folders_ledger_has_the_relation_that_came_to_hold(tmp_path: Path) -> None:
    half = Private(FedAvg(fraction_train=0.5, fraction_evaluate=0), mode="dp", dp={"noise": 1.0}, out=tmp_path)
    half.start(federation(), start(), num_rounds=2)
    told = ledger_of(tmp_path)
    assert told.claim is not None
    assert told.claim.neighbours == "replace-one"
    assert told.lines[-1].epsilon == _claimed(half).epsilon
    everyone = Private(quiet(), mode="dp", dp={"noise": 1.0}, out=tmp_path)
    with pytest.raises(RunError, match="with other clients asked"):  # whose rounds would be half as dear
        everyone.start(federation(), start(), num_rounds=2)


def test_a_new_run_does_not_forget_clients_that_have_other_numbers_now(tmp_path: Path) -> None:
    """Flower numbers nodes anew in every simulation, and a client is charged by its number in mode signds."""
    signds = {"sign_k": 0.25, "sign_eps": 10.0, "rr_eps": 2.0}
    for first, spent in ((101, 24.0), (501, 48.0)):
        grid = federation(0)
        for number in range(4):
            grid.join(first + number, app(private_mod), partition_id=number, tacit_simulation=True)
        wrapped = Private(quiet(), mode="signds", signds=signds, out=tmp_path)
        wrapped.start(grid, start(), num_rounds=2)
        assert _claimed(wrapped).epsilon == pytest.approx(spent)
        assert ledger_of(tmp_path).lines[-1].epsilon == pytest.approx(spent)


def test_two_runs_at_once_do_not_share_a_ledger(tmp_path: Path) -> None:
    one, two = (Private(quiet(), mode="dp", dp={"noise": 1.0}, federate={"rounds": 2}, out=tmp_path) for _ in range(2))
    grids = federation(), federation()
    _messages(one, 1, start(), grids[0])
    sent = len(grids[0].sent)
    _messages(two, 1, start(), grids[1])
    with pytest.raises(RunError, match=r"Another run has written to .* Nothing was sent"):
        _messages(one, 2, start(), grids[0])
    assert len(grids[0].sent) == sent


def test_the_charge_is_on_disk_before_anything_is_sent(tmp_path: Path) -> None:
    grid = federation()
    seen: list[int] = []
    first = grid.nodes[101]

    def respond(message: Message) -> list[Message]:
        records = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
        seen.append(sum(record.get("charge") is not None for record in records))
        replies: list[Message] = first(message)
        return replies

    wrapped = Private(quiet(), mode="dp", dp={"noise": 1.5}, out=tmp_path)
    wrapped._greeting(grid).get_node_ids()
    grid.nodes[101] = respond
    wrapped.start(grid, start(), num_rounds=2)
    assert seen == [1, 2]


def test_a_budget_stops_the_run_and_a_new_start_in_its_folder_does_not_forget(tmp_path: Path) -> None:
    def run() -> tuple[Private, Any]:
        grid = federation()
        wrapped = Private(quiet(), mode="dp", dp={"noise": 1.5, "max_epsilon": 5.0}, out=tmp_path)
        with pytest.raises(BudgetError, match="over the budget of 5") as error:
            wrapped.start(grid, start(), num_rounds=9)
        return wrapped, (grid, str(error.value))

    wrapped, (grid, message) = run()
    assert "in strategy.arrays" in message
    assert wrapped.arrays is not None
    assert _claimed(wrapped).epsilon <= 5.0
    rounds = sum(record["type"] == "round" for record in _records(tmp_path))
    assert rounds >= 1
    assert len(grid.sent) == 4 * (rounds + 1), "greetings and tasks, and nothing for the round over the budget"
    again, (grid, message) = run()
    assert "Not one round fits" in message
    assert again.arrays is None
    with pytest.raises(RunError, match="other settings"):
        Private(quiet(), mode="dp", dp={"noise": 2.0}, out=tmp_path).start(federation(), start())


def _claimed(strategy: Private) -> Privacy:
    assert strategy.privacy is not None
    return strategy.privacy


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def test_nothing_but_a_frame_leaves_a_client() -> None:
    protections: list[dict[str, Any]] = [
        {"mode": "dp", "dp": {"noise": 1.0}},
        {"mode": "paillier", "paillier": ENCRYPTED},
        {"mode": "masks"},
    ]
    answers = {"dp": 12, "paillier": 16, "masks": 40}  # with four enrolments, and four messages to each in a round
    for settings in protections:
        grid = federation()
        Private(quiet(), **settings).start(grid, start(), num_rounds=2)
        assert len(grid.answers) == answers[settings["mode"]]
        for answer in grid.answers:
            assert list(answer.content) == [envelope.FRAME, "tacit.seconds"]
            assert not answer.content.metric_records["tacit.seconds"], "how long it trained tells how much it has"


def test_evaluation_is_the_apps_own() -> None:
    alone = FedAvg().start(federation(client_app=app()), start(), num_rounds=2)
    grid = federation()
    wrapped = Private(FedAvg(), mode="paillier", paillier=ENCRYPTED).start(grid, start(), num_rounds=2)
    for number in (1, 2):
        told, expected = wrapped.evaluate_metrics_clientapp[number], alone.evaluate_metrics_clientapp[number]
        assert dict(told) == pytest.approx(dict(expected))
    evaluated = [message for message in grid.sent if message.metadata.message_type == "evaluate"]
    assert len(evaluated) == 8
    assert all(list(message.content) == ["arrays", "config"] for message in evaluated)


def test_clients_that_drop_out_are_left_out() -> None:
    grid = federation()
    wrapped = Private(quiet(), mode="plain", federate={"rounds": 2})
    train = ConfigRecord()
    messages = wrapped.configure_train(1, start(), train, grid)
    grid.dead = {102}
    arrays, _ = wrapped.aggregate_train(1, grid.send_and_receive(messages))
    assert floats(arrays) - floats(start()) == pytest.approx(mean_shift([0, 2, 3], 1), rel=1e-4)


def test_too_few_replies_lose_the_round_and_keep_the_model(tmp_path: Path) -> None:
    grid = federation()
    wrapped = Private(quiet(), mode="plain", federate={"rounds": 9, "retries": 1}, out=tmp_path)
    for number, dead in enumerate([set(), {101, 102, 103}, set(), {102, 103, 104}, {101, 102, 103}], start=1):
        messages = wrapped.configure_train(number, start(), ConfigRecord(), grid)
        grid.dead = dead
        replies = grid.send_and_receive(messages)
        if number == 5:
            with pytest.raises(DropoutError, match=r"1 of 4 clients sent.* in round 5, 2 needed.*2 rounds in a row"):
                wrapped.aggregate_train(number, replies)
        else:
            arrays, _ = wrapped.aggregate_train(number, replies)
            assert (arrays is None) == bool(dead)
        grid.dead = set()
    assert [record["round"] for record in _records(tmp_path) if record["type"] == "failed"] == [2, 4, 5]


def _frame(answer: Message, change: Callable[[bytes], bytes]) -> Message:
    """Change the frame of a client's answer to its task; greetings and keys pass."""
    frame = envelope.frame_of(answer)
    if len(frame) > 4 and frame[4] in (2, 4):
        answer.content[envelope.FRAME] = envelope.record_of(change(frame))
    return answer


@pytest.mark.parametrize("mode", ["plain", "paillier"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame[:-1], "sent a damaged reply"),
        (lambda frame: frame[:7], "sent a damaged reply"),
        (lambda frame: b"XYZ" + frame[3:], "starts with"),
        (lambda frame: frame[:8] + (9).to_bytes(4, "big") + frame[12:], "stale or belongs to another run"),
    ],
)
def test_a_forged_reply_names_its_node_and_the_others_count(
    mode: str, change: Callable[[bytes], bytes], message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def forging() -> Any:
        grid = federation()
        grid.tamper = lambda answer: _frame(answer, change) if answer.metadata.src_node_id == 103 else answer
        return grid

    keys = {"paillier": ENCRYPTED} if mode == "paillier" else {}
    Private(quiet(), mode=mode, out=tmp_path, **keys).start(forging(), start(), num_rounds=1)
    assert re.search(rf"Client 103.*{message}.*The sum is without it", caplog.text)
    few = Private(quiet(), mode=mode, federate={"retries": 0, "minimum_clients": 4}, out=tmp_path / "few", **keys)
    with pytest.raises(DropoutError, match=f"3 of 4 clients.*Client 103.*{message}"):
        few.start(forging(), start(), num_rounds=1)
    assert [record["type"] for record in _records(tmp_path / "few")] == ["attempt", "failed"]


def _diverging(node: int) -> Any:
    bad = ArrayRecord({"weight": start()["weight"], "bias": Array(np.array([np.nan, 0.0])), "seen": start()["seen"]})
    grid = federation()
    grid.join(node, app(private_mod, change=lambda _: bad), partition_id=node - 101, tacit_simulation=True)
    return grid


def test_a_training_that_diverged_is_named_without_a_word_of_what_came_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = _diverging(103)
    Private(quiet(), mode="plain").start(grid, start(), num_rounds=1)
    assert "Client 103 failed in round 1: its update is not finite" in caplog.text
    (failed,) = (a for a in grid.answers if wire.unpack(envelope.frame_of(a)).kind is wire.Kind.FAILURE)
    assert len(wire.unpack(envelope.frame_of(failed)).body) == 1


@pytest.mark.parametrize("mode", ["dp", "local-dp"])
def test_where_privacy_is_claimed_nobody_learns_that_a_training_diverged(mode: str) -> None:
    grid = _diverging(103)
    wrapped = Private(quiet(), mode=mode, dp={"noise": 0.0})
    moved = floats(wrapped.start(grid, start(), num_rounds=1).arrays) - floats(start())
    expected = sum(0.01 * (number + 1) + 0.001 for number in (0, 1, 3)) / 4
    assert moved == pytest.approx(expected, rel=1e-3), "its update counts as zero"


def test_who_answers_twice_or_unasked_counts_once_or_not(caplog: pytest.LogCaptureFixture) -> None:
    grid = federation()
    wrapped = Private(FedAvg(fraction_train=0.5, fraction_evaluate=0), mode="plain", federate={"rounds": 1})
    messages = list(wrapped.configure_train(1, start(), ConfigRecord(), grid))
    asked = [message.metadata.dst_node_id for message in messages]
    replies = list(grid.send_and_receive(messages))
    stranger = next(node for node in grid.nodes if node not in asked)
    forged = Message(replies[0].content, reply_to=messages[0])
    forged.metadata.__dict__["_src_node_id"] = stranger
    with caplog.at_level(logging.WARNING, "flwr"):
        arrays, _ = wrapped.aggregate_train(1, [*replies, replies[0], forged])
    assert floats(arrays) - floats(start()) == pytest.approx(mean_shift([n - 101 for n in asked], 1), rel=1e-4)
    assert f"node {asked[0]} answered twice" in caplog.text
    assert f"node {stranger} answered, though nobody asked it" in caplog.text


def test_a_node_that_joins_later_is_greeted_and_takes_part() -> None:
    grid = federation(3)
    wrapped = Private(quiet(), mode="plain", federate={"rounds": 2, "clients": 4})
    grid.send_and_receive(wrapped.configure_train(1, start(), ConfigRecord(), grid))
    grid.join(104, app(private_mod), partition_id=3, tacit_simulation=True)
    messages = list(wrapped.configure_train(2, start(), ConfigRecord(), grid))
    assert sorted(message.metadata.dst_node_id for message in messages) == [101, 102, 103, 104]
    grid.join(105, app(private_mod), partition_id=4, tacit_simulation=True)
    with pytest.raises(RunError, match="asks 5 clients, and the run was set up for 4"):
        wrapped.configure_train(3, start(), ConfigRecord(), grid)


def test_signds_and_what_its_reports_cost() -> None:
    wrapped = Private(quiet(), mode="signds", signds={"sign_k": 0.25, "sign_eps": 10.0, "rr_eps": 2.0})
    result = wrapped.start(federation(), start(), num_rounds=2)
    assert _claimed(wrapped).epsilon == pytest.approx(24.0)
    assert (floats(result.arrays) != floats(start())).any()


def test_nbafl_puts_noise_on_what_is_broadcast() -> None:
    grid = federation()
    nbafl = {"smallest": 10, "exposures": 1, "epsilon": 50.0, "w_clip": 10.0}
    wrapped = Private(quiet(), mode="nbafl", nbafl=nbafl, federate={"rounds": 4}, seed=1)
    first, _ = wrapped.aggregate_train(1, grid.send_and_receive(_messages(wrapped, 1, start(), grid)))
    assert first is not None
    second = list(_messages(wrapped, 2, first, grid))
    sent = second[0].content.array_records["arrays"]
    assert sent["seen"] == start()["seen"]
    assert (floats(sent) != floats(first)).all()
    arrays, _ = wrapped.aggregate_train(2, grid.send_and_receive(second))
    assert arrays is not None
    assert _claimed(wrapped).nominal_epsilon == 50.0


def _messages(wrapped: Private, number: int, arrays: ArrayRecord, grid: Any) -> list[Message]:
    return list(wrapped.configure_train(number, arrays, ConfigRecord(), grid))


@pytest.mark.parametrize(
    "name", ["FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan", "QFedAvg", "FedXgbBagging", "FedXgbCyclic"]
)
def test_strategies_that_need_single_updates_are_refused(name: str) -> None:
    kind = getattr(strategies, name)
    made = kind(client_learning_rate=0.1) if name == "QFedAvg" else kind()
    with pytest.raises(ConfigError, match=f"{name} needs .* no single update"):
        Private(made, mode="plain")


def test_other_things_that_cannot_be_wrapped() -> None:
    noisy = strategies.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 4)
    with pytest.raises(ConfigError, match="noise of its own"):
        Private(noisy, mode="dp")
    with pytest.raises(ConfigError, match="wrapped already"):
        Private(Private(FedAvg(), mode="plain"), mode="plain")
    with pytest.raises(ConfigError, match="Message API"):
        Private("fedavg", mode="plain")  # type: ignore[arg-type]


class _Personal(FedAvg):
    """Sends every client a model of its own."""

    def configure_train(self, *given: Any) -> list[Message]:
        messages = list(super().configure_train(*given))
        for message in messages:
            record = dict(message.content.array_records["arrays"].items())
            record["bias"] = Array(np.full(2, float(message.metadata.dst_node_id)))
            message.content = type(message.content)({"arrays": ArrayRecord(record), "config": ConfigRecord()})
        return messages


def test_a_strategy_that_sends_different_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="different models"):
        Private(_Personal(), mode="plain").start(federation(), start())


class _Twice(FedAvg):
    """Asks every client twice."""

    def configure_train(self, *given: Any) -> list[Message]:
        return [*super().configure_train(*given), *super().configure_train(*given)]


def test_a_strategy_that_asks_a_client_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice in a round"):
        Private(_Twice(), mode="plain").start(federation(), start())


def test_a_model_that_changes_its_shape_is_refused() -> None:
    grid = federation()
    wrapped = Private(quiet(), mode="plain", federate={"rounds": 2})
    _messages(wrapped, 1, start(), grid)
    with pytest.raises(RunError, match="changed their names"):
        _messages(wrapped, 2, ArrayRecord({"weight": start()["weight"]}), grid)


def test_batch_norm_is_refused_under_differential_privacy_and_averaged_in_the_clear() -> None:
    arrays = ArrayRecord(dict(start().items()) | {"norm.running_var": Array(np.ones(3, np.float32))})
    with pytest.raises(ConfigError, match=r"batch norm \('norm.running_var'\).*Nothing was sent.*tacit\.fix\(model\)"):
        Private(quiet(), mode="dp", dp={"noise": 1.0}, federate={"rounds": 1}).configure_train(
            1, arrays, ConfigRecord(), federation()
        )
    plain = Private(quiet(), mode="plain", federate={"rounds": 1})
    assert plain.configure_train(1, arrays, ConfigRecord(), federation())


def test_a_strategy_is_for_one_run() -> None:
    wrapped = Private(quiet(), mode="dp", dp={"noise": 1.0})
    assert wrapped.privacy is None, "nothing was released yet"
    wrapped.start(federation(), start(), num_rounds=1)
    with pytest.raises(RunError, match="has run already"):
        wrapped.start(federation(), start(), num_rounds=1)


def test_the_number_of_rounds_is_one() -> None:
    with pytest.raises(ConfigError, match=r"federate\.rounds=4 and num_rounds=3"):
        Private(quiet(), mode="plain", federate={"rounds": 4}).start(federation(), start(), num_rounds=3)
    with pytest.raises(ConfigError, match=r"use strategy\.start"):
        Private(quiet(), mode="plain").configure_train(1, start(), ConfigRecord(), federation())


def test_a_strategy_that_trains_nobody_is_left_in_peace() -> None:
    wrapped = Private(FedAvg(fraction_train=0.0), mode="plain", federate={"rounds": 1})
    assert wrapped.configure_train(1, start(), ConfigRecord(), federation()) == []
    assert wrapped.aggregate_train(1, []) == (None, None)


def test_replies_for_a_round_that_was_not_asked_for() -> None:
    grid = federation()
    wrapped = Private(quiet(), mode="plain", federate={"rounds": 2})
    replies = grid.send_and_receive(_messages(wrapped, 1, start(), grid))
    with pytest.raises(RunError, match="Round 1 was asked for, and replies for round 2"):
        wrapped.aggregate_train(2, replies)


def test_a_message_key_and_a_weight_key_of_the_strategys_own() -> None:
    class Named(FedAvg):
        """Its mean has to carry the keys that it looks for."""

        def aggregate_train(self, server_round: int, replies: Any) -> tuple[ArrayRecord | None, MetricRecord | None]:
            (reply,) = replies
            assert list(reply.content.array_records) == ["arrays"]
            assert dict(reply.content.metric_records["metrics"]) == {"num-examples": 1}
            return super().aggregate_train(server_round, replies)

    result = Private(Named(fraction_evaluate=0), mode="plain").start(federation(), start(), num_rounds=1)
    assert floats(result.arrays) - floats(start()) == pytest.approx(mean_shift(range(4), 1), rel=1e-4)
    assert examples(0) != 1


def test_the_summary_says_who_sees_what(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "flwr"):
        Private(FedAvg(), mode="local-dp", dp={"noise": 3.0}).summary()
        Private(FedAvg(), mode="paillier", paillier={**ENCRYPTED, "keys": "shared"}).summary()
    for line in (
        "mode local-dp around FedAvg",
        "clients are counted before the first round; what follows is for 10 of them",
        "the server sees: every client's clipped update under that client's own noise",
        "unit client, replace-one neighbours, against everyone but the client itself",
        "no amplification by sampling",
        "without noise; fraction_evaluate=0",
        "all clients share the private key",
        IN_APP,
        "No differential privacy is claimed",
    ):
        assert line in caplog.text
