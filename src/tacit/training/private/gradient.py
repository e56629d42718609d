"""The sum of clipped per-example gradients, in the fastest form the model allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.training.batchable import batchable
from tacit.training.cost import cost_of
from tacit.training.cpu import innermost
from tacit.training.private.book_keeping import BookKeeping, NoRule
from tacit.training.private.captured import Repeated
from tacit.training.private.clipping import Clipping
from tacit.training.private.comparison import DTYPES, Comparison
from tacit.training.private.functional import Functional
from tacit.training.private.images import Natively, OutOfOrderError, suits
from tacit.training.private.normalisation import check_normalisation
from tacit.training.private.probe import alias, calm, check_examples_apart, copied, seeded
from tacit.training.recurrence import NotInPartsError, Recurrence
from tacit.training.settings import Loss

Found = TypeVar("Found")
Form = Literal["auto", "book-keeping", "functional"]
FORMS: tuple[Form, ...] = ("auto", "book-keeping", "functional")

_FEW, _USUAL = 6, 64  # examples that are looked at, and of a usual batch
_FITS_A_CACHE = 256  # examples; a step of 2,048 images in parts of 256 took 0.55 times a whole one on a CPU
_FORMED, _FEWEST = 1 << 26, 32  # numbers of gradients that are formed on a GPU at once, and examples that keep it busy


class PrivateGradient:
    """What DP-SGD adds up.

    Attributes:
        form: ``book-keeping`` or ``functional``.
        reason: why not book-keeping; empty where it was taken.
        parameters: the tensors that train, in the order of the sums.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        loss: Loss,
        clipping: Clipping,
        example: tuple[Tensor, Tensor],
        form: Form = "auto",
    ) -> None:
        """Choose the form, after a look at a few examples.

        Args:
            model: the model; it stays as it is.
            loss: one loss per example.
            clipping: how gradients are bounded.
            example: features and labels of a few examples.
            form: ask for one form, or for the fastest.

        Raises:
            ConfigError: the model mixes examples, or the form that was asked for does not fit it.
        """
        if form not in FORMS:
            raise ConfigError(f"Unknown form {form!r}. Choose one of {', '.join(FORMS)}.")
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise ConfigError(f"Expected a model with parameters to train, {type(model).__name__} has none.")
        wide = [p.dtype for p in self.parameters if p.dtype not in DTYPES]
        if wide:
            raise ConfigError(
                f"Expected parameters of float32 or less, got {wide[0]}: norms are computed in double precision, where "
                "products of float32 numbers neither overflow nor vanish. Use model.float()."
            )
        check_normalisation(model)
        device = self.parameters[0].device
        features, labels = (part[:_FEW].to(device) for part in example)
        features, labels = calm(features), calm(labels)
        check_examples_apart(model, loss, features, labels)
        self._model = model
        self._loss = loss
        self._clipping = clipping
        normalises = any(isinstance(part, nn.GroupNorm) for part in model.modules())
        self._lay_out = _channels_first if normalises or not self._bears_last(features) else innermost
        self._compared(features, labels).check_loss()
        self.form, self.reason = "book-keeping", ""
        self._form: BookKeeping | Functional
        if form != "functional":
            try:
                self._form = BookKeeping(model, loss, clipping)
                self._compared(features, labels).check_book_keeping()
            except (NoRule, NotInPartsError) as error:
                if form == "book-keeping":
                    raise ConfigError(f"Book-keeping does not fit this model: {error}. Use form='auto'.") from error
                self.reason = str(error)
        if form == "functional" or self.reason:
            self.form = "functional"
            self._form = self._functional(features, labels)
        repeats = features.is_cuda or self._tiny(features)
        native = not repeats and isinstance(self._form, BookKeeping) and suits(model)
        if native and isinstance(self._form, BookKeeping) and self._bears_last(features, natively=True):
            self._lay_out, self._form.natively = innermost, True
        self._repeated = Repeated(self._form, model, loss, self._lay_out) if repeats else None

    def sums(self, features: Tensor, labels: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the sum of clipped gradients, tensor by tensor, and each example's loss; an empty batch sums to zero.

        On CPUs images are laid out with their channels innermost, which is what convolutions are fastest with, unless
        there is a group norm that is PyTorch's, which takes four times as long with it. On a GPU,
        and of tiny models, sums are repeated (:mod:`tacit.training.private.captured`), and good until the next call.

        Raises:
            ConfigError: the model does in this pass what it did in none of those that its form was chosen by.
        """
        if not len(labels):
            return [torch.zeros_like(p, dtype=torch.float64) for p in self.parameters], labels.new_zeros(
                0, dtype=torch.float32
            )
        with self._form_fits():
            if self._repeated is not None:
                return self._repeated.sums(features, labels)
            return self._through(lambda given: self._form.sums(given, labels)[:2], features)

    def at_once(self, examples: int) -> int:
        """Return how many examples of a batch go through the model at once where nobody says.

        On a CPU as many as a cache bears. On a GPU all, or of gradients that are formed half a batch, and no more than
        there is room for: a plain step's memory is that of its activations, and theirs that of batch times model.
        """
        if not self.parameters[0].is_cuda:
            return _FITS_A_CACHE
        if self.form == "book-keeping":
            return max(examples, 1)
        numbers = sum(p.numel() for p in self.parameters)
        return max(1, min(_FORMED // numbers, max(_FEWEST, -(-examples // 2))))

    def norms(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the norm of each example's gradient before clipping: what a clip bound could be chosen by."""
        with self._form_fits():
            return self._through(lambda given: self._form.norms(given, labels), features).float()

    def _bears_last(self, features: Tensor, *, natively: bool = False) -> bool:
        """Return whether the model computes images with their channels innermost: a view of them may not be possible.

        Nor may one of its outputs be to a loss, where they lie in another order then. Who goes by how memory lies
        (as_strided) computes something else.
        """
        laid_out = innermost(features)
        if laid_out is features and not natively:
            return True
        for training in (False, True):
            try:
                with seeded(features.device, 0), torch.no_grad(), Natively() if natively else nullcontext():
                    outputs = alias(self._model, training=training)(laid_out.clone())
                with seeded(features.device, 0), torch.no_grad():
                    if not _lie_alike(outputs, alias(self._model, training=training)(features.clone())):
                        return False
            except OutOfOrderError:  # is found again in the first pass
                continue
            except RuntimeError:
                return False
        return True

    def _through(self, run: Callable[[Tensor], Found], features: Tensor) -> Found:
        """Return what passes through the model find; of one that computes group norms again all by torch's layers."""
        try:
            return run(self._lay_out(features))
        except OutOfOrderError:
            assert isinstance(self._form, BookKeeping)
            self._lay_out, self._form.natively = _channels_first, False
            return run(self._lay_out(features))

    @contextmanager
    def _form_fits(self) -> Iterator[None]:
        try:
            yield
        except (NoRule, NotInPartsError) as error:
            raise ConfigError(
                f"The form of DP-SGD that was chosen after a look at a few examples ({self.form}) does not fit this "
                f"pass of the model ({type(self._model).__name__}): {error}. Use form='functional', or let the model "
                "use its layers in the same way in every pass."
            ) from error

    def _tiny(self, features: Tensor) -> bool:
        """Return whether nearly all of a step on a CPU goes on calling operations that a program can follow."""
        own = copied(batchable(self._model))
        if self.form == "book-keeping" and any(isinstance(part, Recurrence) and part.native for part in own.modules()):
            return False  # what native kernels compute is one call, and no program's
        usual = features[:1].expand(_USUAL, *features.shape[1:]).clone()  # a model may write to it
        with seeded(features.device, 0):
            return cost_of(own, usual).tiny

    def _compared(self, features: Tensor, labels: Tensor) -> Comparison:
        return Comparison(model=self._model, loss=self._loss, features=features, labels=labels, lay_out=self._lay_out)

    def _functional(self, features: Tensor, labels: Tensor) -> Functional:
        form = Functional(self._model, self._loss, self._clipping)
        try:
            with torch.random.fork_rng(devices=[]):
                form.norms(features, labels)
                form.check_reached(features[:1])
                self._compared(features, labels).check_mapped()
        except Exception as error:  # whatever vmap can't do, in whatever words it says so
            told = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            why = f" ({self.reason})" if self.reason else ""
            raise ConfigError(
                f"No form of DP-SGD fits this model: book-keeping has no rule for it{why}, and torch.func can't map it "
                f"over examples: {told}. Build it of nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, recurrent layers, "
                "attention and norms, or take branches on the data out of it."
            ) from error
        return form


def _lie_alike(one: Any, other: Any) -> bool:
    """Return whether outputs are the same up to rounding, and lie in the same order; of others nobody knows."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return True
    return one.stride() == other.stride() and torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)


def _channels_first(features: Tensor) -> Tensor:
    """Return images on a CPU in the order of their axes; a group norm right behind others ends the process in torch."""
    return features if features.is_cuda else features.contiguous()
