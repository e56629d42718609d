"""Forms of DP-SGD beside autograd, on a few examples: a weight that is used outside its layer shows here.

Gradients may differ by rounding only. In a deep network rounding decides more than the last digits: of some hundred
thousand numbers that a rectifier meets one lies so near zero that two kernels disagree about its sign, and the gradient
of a layer differs by some thousandths. What differs by no more than a few of those is compared once more in double
precision, in which that does not happen, if the model can be computed in it.

Meanwhile parameters are a little away from where they are: some gradients are zero there, as that of a penalty on what
has been moved since, and would hide what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from tacit.errors import ConfigError
from tacit.training.parameters import leaves, reaches_past
from tacit.training.private.book_keeping import OUTSIDE, BookKeeping, NoRule
from tacit.training.private.clipping import Clipping
from tacit.training.private.functional import Functional
from tacit.training.private.probe import Widened, alias, in_double, in_full_precision, seeded
from tacit.training.settings import Loss

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_OTHERWISE = "a map over examples computes something else"
_WIDE = Clipping(bound=1e150)  # clips nothing
_NEAR, _NEAR_OF_ALL = 0.05, 0.01  # of a gradient's norm, and of that of all: what rectifiers do that rounding decides
_AWAY = 0.02  # how far parameters are moved, as a share of each number; the size of those that are all zeros
_PLACES = (_AWAY, True), (0.0, True), (0.0, False)  # that share, and whether those that are all zeros are moved


class Comparison:
    """A few examples that forms are compared on. The model stays as it is."""

    def __init__(
        self, *, model: nn.Module, loss: Loss, features: Tensor, labels: Tensor, lay_out: Callable[[Tensor], Tensor]
    ) -> None:
        """Say what is compared.

        Args:
            model: what trains.
            loss: one loss per example.
            features: of a few examples.
            labels: theirs.
            lay_out: puts images in the order of memory in which a form is given them.
        """
        self._own = _Few(model, loss, features, labels, lay_out)

    def check_book_keeping(self) -> None:
        """Raise NoRule where book-keeping computes something else.

        In evaluation mode, in training mode, and as the model is: what it does in one of them it need not do in
        another. Copies that share its parameters are tried, so that nothing that passes leave behind is the model's.
        """
        self._check(_Few.check_book_keeping)

    def check_mapped(self) -> None:
        """Raise NoRule where a map over examples computes something else: not all of its rules are right."""
        self._check(_Few.check_mapped)

    def check_loss(self) -> None:
        """Raise ConfigError where the loss depends on what trains by another way than through the outputs."""
        own = self._own
        trained = {id(parameter) for parameter in own.model.parameters() if parameter.requires_grad}
        try:
            with seeded(own.labels.device, 0):
                with torch.no_grad():
                    outputs = alias(own.model, training=None)(own.features.clone())
                with torch.enable_grad():  # a loss may listen to gradients, and write to what it is given
                    losses = own.loss(tree_map_only(Tensor, _begun, outputs), own.labels.clone())
        except Exception:  # it may ask for outputs of a kind of their own with gradients: it is compared with the rest
            return
        if any(id(leaf) in trained for leaf in leaves(losses)):
            raise ConfigError(
                "The loss depends on parameters of the model by itself, and not through the outputs alone: what comes "
                "of that would be missing from the gradients that are clipped. Let it look at outputs and labels only; "
                "a penalty on weights is the optimiser's (weight_decay), and a proximal term train.mu."
            )

    def _check(self, compare: Callable[[_Few], bool]) -> None:
        """Compare a little away from where the parameters are, and nearer and where they are if that can't tell all.

        There may be nothing finite away from there, or a model may refuse such parameters.
        """
        otherwise = OUTSIDE if compare is _Few.check_book_keeping else _OTHERWISE
        for share, zeros in _PLACES:
            with in_full_precision(), _moved(self._own.model, share, zeros=zeros):
                self._own.told, self._own.untold = 0, False
                try:
                    equal = compare(self._own) or _in_double(self._own, compare)
                except NoRule:
                    raise
                except Exception:
                    if (share, zeros) == _PLACES[-1]:
                        raise
                    continue
            if not equal:
                raise NoRule(otherwise)
            if not self._own.untold:
                return
        if not self._own.told:
            raise NoRule("its gradients are not finite, so that nothing tells whether they are right")


def _begun(output: Tensor) -> Tensor:
    """Return an output that begins a graph of its own."""
    own = output.detach()
    return own.requires_grad_().clone() if own.is_floating_point() or own.is_complex() else own.clone()


def _in_double(few: _Few, compare: Callable[[_Few], bool]) -> bool:
    """Return what a comparison finds in double precision; of a model that can't be computed in it what it has found."""
    wide = in_double(few.model, few.loss, few.features)
    if wide is None:
        return False
    model, loss, features = wide
    try:
        with Widened():
            return compare(_Few(model, loss, features, few.labels, few.lay_out))
    except NoRule:
        raise
    except Exception:  # it has numbers of its own in single precision, or asks for them
        return False


class _PastError(Exception):
    """A copy's loss depends on something that trains and is not the copy's: a closure's, say."""


class _Few:
    """Examples, and a model in some precision.

    Comparisons raise NoRule where gradients differ, and return whether all of them differ by rounding only: the rest
    differs by what rectifiers may do.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, features: Tensor, labels: Tensor, lay_out: Callable[[Tensor], Tensor]
    ) -> None:
        self.model, self.loss, self.features, self.labels, self.lay_out = model, loss, features, labels, lay_out
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self.told, self.untold = 0, False  # how often gradients were finite, and whether others told nothing
        self._wide = any(p.dtype == torch.float64 for p in self._parameters)

    def check_book_keeping(self) -> bool:
        """Compare in all modes, with the same random numbers for both."""
        modes = {part.training for part in self.model.modules()}
        return all(self._compare(own) for own in ((False, True) if len(modes) == 1 else (False, True, None)))

    def _compare(self, training: bool | None) -> bool:
        """Compare in one mode.

        In evaluation mode autograd has the model's own layers; others in their place drop at random in another order.
        """
        features, labels = self.features, self.labels
        together, own, other = (BookKeeping(alias(self.model, training=training), self.loss, _WIDE) for _ in range(3))
        plain = alias(self.model, training=training) if training is False else other.unheard()
        laid_out, device, equal = self.lay_out(features), labels.device, True
        with seeded(device, 0):
            norms = together.norms(laid_out, labels)
        alone = torch.full_like(norms, torch.nan)
        for i in range(len(labels)):
            with seeded(device, i):
                found = own.sums(laid_out[i : i + 1], labels[i : i + 1])[0]
            with seeded(device, i):
                right = self._by_autograd(plain, features[i : i + 1], labels[i : i + 1])
            alone[i] = torch.stack([gradient.square().sum() for gradient in right]).sum().sqrt()
            if alone[i].isfinite():
                equal &= self._equal(found, right, OUTSIDE)
                self.told += 1
            else:
                self.untold = True
        known = alone.isfinite()
        if training is False and known.any():  # in another mode a batch may draw other numbers than its examples
            norms, alone = norms[known], alone[known]
            close = partial(torch.allclose, norms, alone)
            if not close(rtol=_NEAR, atol=1e-5 * float(alone.max())):
                raise NoRule(OUTSIDE)
            equal &= close(rtol=1e-3, atol=1e-5 * float(alone.max()))
        self._check_order(training, laid_out)
        return equal

    def _check_order(self, training: bool | None, laid_out: Tensor) -> None:
        """Look whether layers see examples in the order of the batch, whatever a model draws.

        Where they don't, an example's gradient would be clipped by the norm of another's. No gradient comes to examples
        whose losses are left out; halves by the bits of an example's number tell any two apart.
        """
        labels = self.labels
        numbers = torch.arange(len(labels), device=labels.device)
        kept = numbers >= 0

        def kept_alone(outputs: Any, given: Tensor) -> Tensor:
            return torch.where(kept, self.loss(outputs, given), 0.0)

        some = BookKeeping(alias(self.model, training=training), kept_alone, _WIDE)
        for bit in range((len(labels) - 1).bit_length()):
            kept = (numbers >> bit) % 2 == bit % 2
            with seeded(labels.device, bit):
                norms = some.norms(laid_out, labels)
            if bool((norms[~kept] > 0.0).any()):
                raise NoRule("a layer sees the examples in another order than that of the batch")

    def check_mapped(self) -> bool:
        """Compare a map's sum in evaluation mode, where mostly nothing is drawn."""
        mapped = Functional(alias(self.model, training=False), self.loss, _WIDE)
        found, once, again = (self._summed(run, seed) for run, seed in ((mapped, 0), (None, 0), (None, 1)))
        if not all(bool(own.isfinite().all()) for own in once):
            self.untold = True
            return True
        self.told += 1
        return not _close(once, again, self._parameters) or self._equal(found, once, _OTHERWISE)

    def _summed(self, mapped: Functional | None, seed: int) -> list[Tensor]:
        """Return the sum of the examples' gradients, by autograd one by one where it isn't mapped."""
        features, labels = self.features, self.labels
        with seeded(labels.device, seed):
            if mapped is not None:
                return mapped.sums(features.clone(), labels)[0]
            singles = (  # each by a copy of its own, as passes may count
                self._by_autograd(alias(self.model, training=False), features[i : i + 1].clone(), labels[i : i + 1])
                for i in range(len(labels))
            )
            return [torch.stack(parts).sum(0) for parts in zip(*singles, strict=True)]

    def _by_autograd(self, model: nn.Module, features: Tensor, labels: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            loss = self.loss(model(features), labels).sum()
            if self._wide and reaches_past(loss, self._parameters):
                raise _PastError  # the copy's gradient is not all of it
            if not loss.requires_grad:  # it leaves out all that trains
                return [torch.zeros_like(p, dtype=torch.float64) for p in self._parameters]
            found = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
        return [gradient.double() for gradient in found]

    def _equal(self, found: Sequence[Tensor], right: Sequence[Tensor], otherwise: str) -> bool:
        """Return whether gradients differ by rounding only; by more than rectifiers may do they may not."""
        equal = _close(found, right, self._parameters)
        if not equal and not _close(found, right, self._parameters, least=(_NEAR, _NEAR_OF_ALL)):
            raise NoRule(otherwise)
        return equal


def _close(
    found: Sequence[Tensor],
    right: Sequence[Tensor],
    parameters: Sequence[Tensor],
    least: tuple[float, float] = (1e-3, 1e-5),
) -> bool:
    """Return whether gradients differ by rounding only, of whatever size they are: each by a share of its own norm.

    What cancels, such as the gradient of a bias before a norm, is as wrong as what it is made of: by a share of all.
    """
    whole = torch.stack([gradient.square().sum() for gradient in right]).sum().sqrt()
    for own, same, parameter in zip(found, right, parameters, strict=True):
        rounding = torch.finfo(parameter.dtype).eps
        share, beside = max(least[0], 16.0 * rounding), max(least[1], rounding)
        if not (own - same).norm() <= share * same.norm() + beside * whole:
            return False
    return True


@contextmanager
def _moved(model: nn.Module, share: float, *, zeros: bool) -> Iterator[None]:
    """While it is on, parameters that train are away by a share of theirs.

    Where zeros are moved too, such that are all zeros, frozen or not, are small numbers: a last layer of zeros, or a
    gate, would hide the others. All are as they were afterwards, and autograd, which counts what is written, takes no
    note of it: somebody may still differentiate a loss.
    """
    draw = torch.Generator().manual_seed(0)
    before = list[tuple[Tensor, Tensor]]()
    for parameter in model.parameters():
        own = parameter.data
        if own.dtype not in DTYPES or own.layout != torch.strided or torch._debug_has_internal_overlap(own):
            continue  # a number may lie where another does
        if (zeros and not bool(own.any())) or (share and parameter.requires_grad and bool(own.any())):
            before.append((own, own.clone()))
    try:
        for own, was in before:
            away = torch.randn(own.shape, generator=draw).to(own)
            own.copy_(was * (1.0 + share * away) if bool(was.any()) else _AWAY * away)
        yield
    finally:
        for own, was in before:
            own.copy_(was)
