r"""What the scores of canaries say of an epsilon, all of them seen in one run.

Canaries are made-up clients or examples. Each is put in by a fair coin of its own, and whoever looks at what was
released gives each a score: how much of it seems to be there. In :func:`held_against` the scores meet a claim.

**Of the claimed shape.** Where every canary takes part in every release and the noise is Gaussian, a score is normal,
:math:`s_i = b_i \mu + n_i` in units of its own deviation, and canaries that share no coordinate have independent noise.
Then the difference of the two means over the pooled deviation is Student's t with :math:`n - 2` degrees of freedom and
the noncentrality :math:`\mu / \sqrt{1/n_1 + 1/n_0}`; its distribution, inverted, bounds :math:`\mu` from below with the
exact confidence (:func:`least_mu`; how many canaries the coins put in is independent of the noise, and conditioned on).
Mu is Gaussian differential privacy's, and epsilon follows. What else is in the scores, such as other clients' updates,
widens the deviation and lowers the bound (Andrew et al., "One-shot empirical privacy estimation for federated
learning", 2024, with a bound in the place of their estimate).

Where clients are drawn anew for every round the scores are log-likelihood ratios of another law. A third of the
canaries then choose a mark, and the others count as in :mod:`tacit.accounting.evidence`; where what follows shows more,
that is taken, each with half of what the confidence leaves.

**Of any shape.** Of the canaries with the extreme scores it is guessed which were put in. A mechanism whose best test
with false alarms at the rate x finds at most T(x) allows that many right guesses with a probability that
:func:`too_many_right` bounds, however the canaries' scores hang together (Mahloujifar, Melis & Chaudhuri, "Auditing
f-differential privacy in one run", 2024, after Steinke, Nasr & Jagielski, "Privacy auditing with one (1) training run",
2023). It rests on the coins alone, and is far below the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.accounting import profile
from tacit.accounting.evidence import Claimed, ends, rates
from tacit.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float64]

CONFIDENCE = 0.97  # of exact bounds at 95% eleven or more of two hundred exceed the truth two times in five
ALARM = 0.9999  # the confidence with which a claim has to be false before it is called so
_SHARES = (1.0, 0.5, 0.2, 0.1, 0.05)  # of the canaries that are guessed
_HALVINGS = 40
_LARGEST_MU, _LARGEST_EPSILON = 200.0, 40.0
_FEW = 20  # scores of each kind, below which nothing is said
Inverse = Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """What canaries found in one run, beside what it claims.

    Attributes:
        canaries: how many there were, and
        inside: how many of them the coins put into the training.
        epsilon: the claim.
        delta: of the claim and the bounds.
        bound: what epsilon is at least for a mechanism of the claimed shape, by all that was released.
        final: the same by the final model alone.
        any_shape: what it is at least of any mechanism, by all that was released.
        confidence: with which each of them holds.
        refuted: whether the claim is false, with confidence ``ALARM``.
        unit: what a canary is: a client or an example.
    """

    canaries: int
    inside: int
    epsilon: float
    delta: float
    bound: float
    final: float | None
    any_shape: float
    confidence: float
    refuted: bool
    unit: str = "client"


def held_against(
    claimed: Claimed,
    scores: Scores,
    inside: NDArray[np.bool_],
    *,
    final: Scores | None = None,
    normal: bool,
    confidence: float = CONFIDENCE,
) -> OneRun:
    """Return what scores say of a claim.

    Args:
        claimed: the claim.
        scores: of every canary, by all that was released; larger where it seems to have been there.
        inside: whether it was.
        final: scores by the final model alone.
        normal: whether a score is normal with one deviation, as where everyone is in every round.
        confidence: of each bound.
    """
    one, other = scores[inside], scores[~inside]
    if min(len(one), len(other)) < _FEW:
        raise ConfigError(
            f"Expected {_FEW} canaries of each kind, got {len(one)} in the training and {len(other)} that are not. Use "
            "more canaries."
        )
    any_shape = guessed(scores, inside, claimed, confidence=confidence)
    if normal:
        bound = epsilon_of(least_mu(one, other, confidence=confidence), claimed.delta)
        refuted = epsilon_of(least_mu(one, other, confidence=ALARM), claimed.delta) > claimed.epsilon
    else:  # the larger of two, each of which may fail with half the probability
        half = (1.0 + confidence) / 2.0
        bound, refuted = _seen(claimed, scores, inside, half)
        bound = max(bound, guessed(scores, inside, claimed, confidence=half))
    return OneRun(
        canaries=len(scores),
        inside=len(one),
        epsilon=claimed.epsilon,
        delta=claimed.delta,
        bound=bound,
        final=None if final is None else _seen(claimed, final, inside, confidence)[0],
        any_shape=any_shape,
        confidence=confidence,
        refuted=bool(refuted),
        unit=claimed.ledger.unit,
    )


def epsilon_of(mu: float, delta: float) -> float:
    """Return the epsilon of Gaussian differential privacy with ``mu``."""
    return 0.0 if mu <= 0.0 else math.inf if math.isinf(mu) else profile.epsilon_at(delta, mu)


def least_mu(inside: Scores, outside: Scores, *, confidence: float = CONFIDENCE) -> float:
    """Return what mu is at least, for normal scores of one deviation that differ by mu of them.

    >>> import numpy as np
    >>> generator = np.random.default_rng(1)
    >>> round(least_mu(generator.normal(1.0, 1.0, 500), generator.normal(0.0, 1.0, 500)), 2)
    0.92
    """
    from scipy.special import nctdtr

    n1, n0 = len(inside), len(outside)
    free = n1 + n0 - 2
    pooled = ((inside - inside.mean()) ** 2).sum() + ((outside - outside.mean()) ** 2).sum()
    unit = math.sqrt(1.0 / n1 + 1.0 / n0)
    shift = float(inside.mean() - outside.mean())
    if not math.isfinite(shift) or not math.isfinite(float(pooled)):
        raise ConfigError("Expected scores that are finite numbers.")
    if shift <= 0.0:
        return 0.0
    if pooled <= 0.0:
        return math.inf
    seen = shift / math.sqrt(float(pooled) / free) / unit

    def explained(mu: float) -> bool:
        """Return whether as much is seen with a probability of more than one less the confidence."""
        return float(nctdtr(free, mu / unit, seen)) <= confidence

    if explained(0.0):
        return 0.0
    low, high = 0.0, min(seen * unit, _LARGEST_MU)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if explained(middle) else (middle, high)
    return low


def too_many_right(
    inverse: Inverse, right: int, guesses: int, canaries: int, *, confidence: float = CONFIDENCE
) -> bool:
    """Return whether so many right guesses refute a mechanism whose tests obey T, at the confidence.

    Args:
        inverse: of T: what a false alarm's rate is at least for a test that finds so many.
        right: how many guesses were right.
        guesses: of how many; the others were left out.
        canaries: how many there were.
        confidence: with which it is refuted.
    """
    if right == 0:
        return False
    alarm = (1.0 - confidence) / canaries
    more, less = alarm * right, alarm * (guesses - right)  # shares of the wrong and the right, from many to few
    for place in range(right - 1, -1, -1):
        grown = max(less, inverse(more))
        more += place / (guesses - place) * (grown - less)
        less = grown
        if more + less > guesses / canaries:
            return True
    return False


def guessed(scores: Scores, inside: NDArray[np.bool_], claimed: Claimed, *, confidence: float = CONFIDENCE) -> float:
    """Return what epsilon is at least, of any shape, by guessing the canaries with the extreme scores.

    How many are guessed is fixed by the claim, before anything is seen.
    """
    import numpy as np

    canaries = len(scores)
    guesses = _how_many(claimed, canaries, confidence)
    order = np.argsort(scores, kind="stable")
    below, above = order[: guesses // 2], order[canaries - (guesses - guesses // 2) :]
    right = int((~inside[below]).sum() + inside[above].sum())
    return _least(right, guesses, canaries, claimed.delta, confidence)


def _least(right: int, guesses: int, canaries: int, delta: float, confidence: float) -> float:
    low, high = 0.0, _LARGEST_EPSILON
    if not too_many_right(_inverse(low, delta), right, guesses, canaries, confidence=confidence):
        return 0.0
    for _ in range(_HALVINGS // 2):
        middle = (low + high) / 2.0
        refuted = too_many_right(_inverse(middle, delta), right, guesses, canaries, confidence=confidence)
        low, high = (middle, high) if refuted else (low, middle)
    return low


def _inverse(epsilon: float, delta: float) -> Inverse:
    """Return the inverse of T for a pair of epsilon and delta."""
    shrunk, grown = math.exp(-epsilon), math.exp(epsilon)
    return lambda found: max(0.0, (found - delta) * shrunk, 1.0 - delta - grown * (1.0 - found))


def _how_many(claimed: Claimed, canaries: int, confidence: float) -> int:
    """Return how many guesses do best where a Gaussian release costs what is claimed."""
    from scipy.special import ndtr, ndtri

    mu = profile.largest_mu(min(claimed.epsilon, _LARGEST_EPSILON), claimed.delta)
    best, most = canaries, -1.0
    for share in _SHARES:
        guesses = max(2, round(share * canaries))
        # The mark that a share of guesses lies beyond on either side of mu / 2, nearly; and how many of them are right.
        mark = -float(ndtri(share / 2.0)) if share < 1.0 else 0.0
        kept, wrong = float(ndtr(mu / 2.0 - mark)), float(ndtr(-mu / 2.0 - mark))
        found = _least(int(guesses * kept / (kept + wrong)), guesses, canaries, claimed.delta, confidence)
        best, most = (guesses, found) if found > most else (best, most)
    return best


def _seen(claimed: Claimed, scores: Scores, inside: NDArray[np.bool_], confidence: float) -> tuple[float, bool]:
    """Return the bound by a mark that a third of the canaries chose, and whether it refutes the claim.

    They are few, so the mark is the one that does best for a mechanism of the claimed noise, near what they say.
    """
    import numpy as np

    place = np.arange(len(scores)) % 3 == 0
    choose = [scores[place & inside], scores[place & ~inside]]
    count = [scores[~place & inside], scores[~place & ~inside]]
    marks = np.unique(np.quantile(scores[place], np.linspace(0.02, 0.98, 49), method="inverted_cdf"))
    best, event = -math.inf, (0.0, True)
    for above in (True, False):
        hits = [_beyond(own, marks, above) for own in (choose if above else choose[::-1])]
        few = min(len(own) for own in choose)
        shares = [np.floor(own / len(of) * few).astype(np.int64) for own, of in zip(hits, choose, strict=True)]
        low, high = ends(shares[0], shares[1], few, confidence=0.5)
        margins = claimed.margins(low, high)
        at = int(np.argmax(margins))
        if margins[at] > best:
            best, event = float(margins[at]), (float(marks[at]), above)
    mark, above = event
    likely, unlikely = count if above else count[::-1]
    trials = min(len(likely), len(unlikely))  # the rest of the larger is left out
    found = [int(_beyond(own[:trials], np.array([mark]), above)[0]) for own in (likely, unlikely)]
    seen, sure = (rates(found[0], found[1], trials, confidence=level) for level in (confidence, ALARM))
    return claimed.least_epsilon(seen), claimed.refuted_by(sure)


def _beyond(scores: Scores, marks: Scores, above: bool) -> NDArray[np.int64]:
    import numpy as np

    beyond = scores[:, None] > marks if above else scores[:, None] <= marks
    return np.asarray(beyond.sum(axis=0), np.int64)
