"""Report 004's DP-SGD again: logistic regression on breast cancer over epsilon, delta and iterations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tacit.accounting.profile import epsilon_at
from tacit.federated.examples import noise_for
from tacit.randomness import Randomness
from tacit.tasks import tumours
from tacit.training.private import logistic
from tacit.training.private.logistic import Setting
from tacit_labs.baselines.dp_sgd import Training, fit, noise_multiplier, normal_of, share, total
from tacit_labs.harness.experiment import Progress
from tacit_labs.lab_004.dpsgd.measured import Measured, Rise, Scaling, Trained, Way

HELD_OUT = 114  # of 569 patients; 455 are learned from
REPOSITORY = "4332001876/Data_Privacy"  # the author's public code, which has what the report does not state
SPLIT = 1  # there all seeds have this split: they decide the noise alone
NO_PRIVACY = 1.0  # a delta that every mechanism keeps to


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is; the defaults are the report's."""

    seeds: int = 10
    sweeps: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: {
            "epsilon": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
            "delta": (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0),
            "iterations": (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
        }
    )
    epsilon: float = 1.0
    delta: float = 1e-3
    iterations: int = 1000
    lr: float = 0.01
    clip: float = 1.0  # in the public code
    rise_seeds: int = 100
    rise: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000, 2000)
    rise_otherwise: tuple[tuple[float, bool], ...] = ((1.0, False), (0.1, False), (1.0, True))  # clip, protected bias


FULL = Sizes()
QUICK = Sizes(
    seeds=4,
    sweeps={
        "epsilon": (0.1, 1.0, 10.0),
        "delta": (1e-7, 1e-3, 1.0),
        "iterations": (10, 100, 1000, 5000),
    },
    rise_seeds=30,
    rise=(10, 50, 500),
    rise_otherwise=((1.0, False), (0.1, False)),
)
_REPORTED: tuple[Way, ...] = ("normal", "reported", "tight")  # on the report's features
_BUDGETS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # of the two substitutions, which cost nothing to compute
_STEPS = (100, 200, 500, 1000, 2000, 5000, 10_000)  # the report's range for its 0.2%


@dataclass(frozen=True, kw_only=True)
class Split:
    """Patients to learn from and patients to test on."""

    features: NDArray[np.float64]
    labels: NDArray[np.float64]
    test_features: NDArray[np.float64]
    test_labels: NDArray[np.float64]


def split(seed: int, *, normalised: bool = True) -> Split:
    """Return 455 and 114 patients, drawn by ``seed``; the features are z-scores of all 569, as in the report."""
    from sklearn.model_selection import train_test_split

    table, labels = tumours.load_table()
    if normalised:
        table = (table - table.mean(axis=0)) / table.std(axis=0)
    features, tested, known, truth = train_test_split(table, labels, test_size=HELD_OUT, random_state=seed)
    return Split(
        features=np.ascontiguousarray(features),
        labels=known.astype(np.float64),
        test_features=np.ascontiguousarray(tested),
        test_labels=truth.astype(np.float64),
    )


def accuracies(data: Split, training: Training, *, seed: int, at: Collection[int] = ()) -> dict[int, float]:
    """Return the test accuracy after the last step, and after each step of ``at``.

    The noise is what the report's code draws with this seed.
    """
    draw = normal_of(seed)
    seen: dict[int, float] = {}

    def look(step: int, weights: NDArray[np.float64], bias: float) -> None:
        if step == training.steps or step in at:
            logits = data.test_features @ weights[: data.test_features.shape[1]] + bias
            seen[step] = float(((logits > 0) == data.test_labels).mean())

    fit(data.features, data.labels, training, draw, look)
    return seen


def seeds_of(sizes: Sizes, seed: int) -> tuple[int, ...]:
    """Return the seeds: the report's 0 to 9 by default, the next ten with ``--seed 2``, and so on."""
    first = 10 * max(seed - 1, 0)
    return tuple(range(first, first + sizes.seeds))


def measure(sizes: Sizes, seed: int, progress: Progress) -> Measured:
    """Train everything."""
    seeds = seeds_of(sizes, seed)
    bench = _Bench(sizes=sizes, data=dict.fromkeys(seeds, split(SPLIT)), kept={})
    settings = _settings(sizes)
    points: list[Trained] = []
    squared: list[Trained] = []
    for done, (name, value) in enumerate(settings):
        progress(f"DP-SGD over {name}", done=done, total=len(settings) + 3)
        points += [bench.trained(name, value, way) for way in _REPORTED]
        squared += [bench.trained(name, value, way, _squared) for way in _REPORTED if way != "tight"]
    progress("DP-SGD with the bias protected", done=len(settings), total=len(settings) + 3)
    over = sizes.sweeps.get("iterations", ())
    protected = [bench.trained("iterations", value, "reported", _protected) for value in over]
    progress("DP-SGD on public bounds", done=len(settings) + 1, total=len(settings) + 3)
    points += _ours(sizes, bench)
    progress("DP-SGD with many seeds", done=len(settings) + 2, total=len(settings) + 3)
    return Measured(
        epsilon=sizes.epsilon,
        delta=sizes.delta,
        iterations=sizes.iterations,
        seeds=seeds,
        sweeps=sizes.sweeps,
        points=tuple(points),
        squared=tuple(squared),
        protected=tuple(protected),
        rise=_rise(sizes, seeds[0], sizes.clip, one_split=True),
        others=tuple(_rise(sizes, seeds[0], clip, protected=bias) for clip, bias in sizes.rise_otherwise),
        scaling=_scaling(sizes, bench),
        spent=_spent(points),
        unspent={epsilon: {k: _unspent(epsilon, sizes.delta, k) for k in _STEPS} for epsilon in _BUDGETS},
    )


def _squared(training: Training) -> Training:
    return replace(training, loss="squared")


def _protected(training: Training) -> Training:
    return replace(training, protected_bias=True)


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """The report's training on its splits; the same training is done once."""

    sizes: Sizes
    data: Mapping[int, Split]
    kept: dict[tuple[Training, int], dict[int, float]]

    def trained(
        self, sweep: str, value: float, way: Way, change: Callable[[Training], Training] = lambda training: training
    ) -> Trained:
        epsilon, delta, iterations = self.budget(sweep, value)
        noise = None if way == "normal" else noise_of(way, epsilon=epsilon, delta=delta, iterations=iterations)
        if noise is None:
            longest = max(self.sizes.iterations, *map(int, self.sizes.sweeps.get("iterations", (0,))))
            training = Training(steps=longest, lr=self.sizes.lr)  # every shorter one is a part of it
        else:
            training = Training(steps=iterations, lr=self.sizes.lr, clip=self.sizes.clip, noise_multiplier=noise)
        each = tuple(self._accuracy(change(training), seed, iterations) for seed in self.data)
        return Trained(
            sweep=sweep,
            value=value,
            way=way,
            epsilon=epsilon,
            delta=delta,
            iterations=iterations,
            noise_multiplier=noise,
            each=each,
        )

    def budget(self, sweep: str, value: float) -> tuple[float, float, int]:
        """Return epsilon, delta and iterations where one of them has ``value``."""
        epsilon = value if sweep == "epsilon" else self.sizes.epsilon
        delta = value if sweep == "delta" else self.sizes.delta
        return epsilon, delta, int(value) if sweep == "iterations" else self.sizes.iterations

    def _accuracy(self, training: Training, seed: int, iterations: int) -> float:
        key = (training, seed)
        if key not in self.kept:
            looks = {self.sizes.iterations, *map(int, self.sizes.sweeps.get("iterations", ()))}
            self.kept[key] = accuracies(self.data[seed], training, seed=seed, at=looks)
        return self.kept[key][iterations]


def noise_of(way: Way, *, epsilon: float, delta: float, iterations: int) -> float:
    """Return the noise multiplier of a step: the report's, or the least for the same promise, none where delta is 1."""
    if way == "reported":
        return noise_multiplier(epsilon=epsilon, delta=delta, steps=iterations)
    return 0.0 if delta >= NO_PRIVACY else noise_for("tight", epsilon=epsilon, delta=delta, steps=iterations)


def _ours(sizes: Sizes, bench: _Bench) -> list[Trained]:
    """Return what Tacit gives for the same promise, with nothing outside it: public bounds and a protected bias."""
    raw = [split(SPLIT, normalised=False) for _ in bench.data]
    features, tests = (np.stack([tumours.scaled(rows) for rows in part]) for part in _columns(raw, "features"))
    labels, truths = (np.stack(part).astype(np.int64) for part in _columns(raw, "labels"))
    wanted = [(name, value) for name, value in _settings(sizes) if name != "delta" or value < NO_PRIVACY]
    plans = []
    for name, value in wanted:
        epsilon, delta, iterations = bench.budget(name, value)
        noise = noise_of("ours", epsilon=epsilon, delta=delta, iterations=iterations)
        plans.append(Setting(steps=iterations, lr=sizes.lr, clip_bound=sizes.clip, noise_multiplier=noise))
    draw = Randomness.of(seed=next(iter(bench.data))).within("report 004, ours").stream("noise").standard_normal
    found = logistic.accuracies(logistic.train(features, labels, plans, draw), tests, truths)
    return [
        Trained(
            sweep=name,
            value=value,
            way="ours",
            epsilon=bench.budget(name, value)[0],
            delta=bench.budget(name, value)[1],
            iterations=plan.steps,
            noise_multiplier=plan.noise_multiplier,
            each=tuple(float(share_of_right) for share_of_right in each),
        )
        for (name, value), plan, each in zip(wanted, plans, found, strict=True)
    ]


def _columns(splits: Sequence[Split], name: str) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return one field of all splits, of the patients to learn from and of those to test on."""
    return [getattr(one, name) for one in splits], [getattr(one, f"test_{name}") for one in splits]


def _settings(sizes: Sizes) -> list[tuple[str, float]]:
    return [(name, value) for name, values in sizes.sweeps.items() for value in values]


def _rise(sizes: Sizes, first: int, clip: float, *, protected: bool = False, one_split: bool = False) -> Rise:
    each: dict[int, list[float]] = {steps: [] for steps in sizes.rise}
    for seed in range(first, first + sizes.rise_seeds):
        data = split(SPLIT if one_split else seed)
        for steps in sizes.rise:
            noise = noise_of("reported", epsilon=sizes.epsilon, delta=sizes.delta, iterations=steps)
            training = Training(steps=steps, lr=sizes.lr, clip=clip, noise_multiplier=noise, protected_bias=protected)
            each[steps].append(accuracies(data, training, seed=seed)[steps])
    return Rise(clip=clip, protected=protected, one_split=one_split, seeds=sizes.rise_seeds, each=each)


def _scaling(sizes: Sizes, bench: _Bench) -> Scaling:
    deviations = tumours.load_table()[0].std(axis=0)
    training = Training(steps=sizes.iterations, lr=sizes.lr)
    return Scaling(
        widest=float(deviations.max()),
        narrowest=float(deviations.min()),
        raw=tuple(accuracies(split(SPLIT, normalised=False), training, seed=s)[sizes.iterations] for s in bench.data),
        scaled=tuple(accuracies(data, training, seed=s)[sizes.iterations] for s, data in bench.data.items()),
    )


def _spent(points: Sequence[Trained]) -> dict[tuple[str, float], float]:
    """Return what the report's noise costs at each of its points, by the exact profile of full-batch steps."""
    return {
        (point.sweep, point.value): epsilon_at(point.delta, point.iterations**0.5 / point.noise_multiplier)
        for point in points
        if point.way == "reported" and point.noise_multiplier and point.delta < NO_PRIVACY
    }


def _unspent(epsilon: float, delta: float, steps: int) -> float:
    """Return the share of a budget that the two substitutions leave unspent by their own theorem."""
    return 1.0 - total(share(epsilon=epsilon, delta=delta, steps=steps), steps) / epsilon


def settings_words(measured: Measured, sizes: Sizes) -> str:
    """Return what was run, in words."""
    first, last = measured.seeds[0], measured.seeds[-1]
    return (
        "DP-SGD: scikit-learn's breast cancer data (569 patients, 30 features), 455 to learn from and 114 to test on, "
        f"seeds {first} to {last}, features as z-scores of all patients, {sizes.iterations:,} iterations at rate "
        f"{sizes.lr:g}, epsilon {sizes.epsilon:g}, delta {sizes.delta:g} where they are not swept. What the report "
        f"does not state is in its author's public code (`{REPOSITORY}`), as here: clipping bound {sizes.clip:g}, "
        "weights from zero, a bias that moves by its exact gradient, and one split of the patients for all seeds, "
        "which decide the noise alone."
    )


def smaller(sizes: Sizes) -> str:
    """Return what is smaller than in the full run."""
    if sizes == FULL:
        return ""
    counts = {name: (len(values), len(FULL.sweeps[name])) for name, values in sizes.sweeps.items()}
    fewer = ", ".join(f"{few} values of {name} instead of {many}" for name, (few, many) in counts.items())
    return (
        f"DP-SGD: {sizes.seeds} seeds instead of {FULL.seeds} ({sizes.rise_seeds} instead of {FULL.rise_seeds} for the "
        f"rise); {fewer}."
    )
