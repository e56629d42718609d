"""A probe for models and losses in which one example changes what is computed of another.

DP-SGD bounds what an example adds to the sum through its own gradient. Where a batch mixes its examples (a batch
statistic, attention over the batch, mixup) an example also moves the gradients of the others, and nothing bounds that.

The probe trains copies on a few examples, in the mode that trains and with all generators at one seed, and exchanges
some of the examples for others. With :math:`x` and :math:`y` two halves of a batch,

* outputs and losses of the half that stays must stay, and
* the gradient must be additive: :math:`G(x, y) - G(x', y) - G(x, y') + G(x', y') = 0`;
* what the model keeps of a pass must not depend on the examples, nor a later pass on those of an earlier one.

It computes in full float32 precision (:func:`in_full_precision`): tensor cores cut off what they add up, by more than
a mixture may be. A model that draws random numbers is tried with several seeds. What the probe can't see: a mixture
that comes for other values, other batch sizes or later steps only, or in fewer than about one pass in eight; and data
that are kept outside of the model and change no output. Models in half precision, by their parameters or by autocast,
add up gradients, and batches of other sizes, with more rounding than a mixture may be: what is no more than that is
looked for again in double precision. A mixture of gradients alone that half precision alone has is not seen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from tacit.errors import ConfigError
from tacit.randomness import borrowed_generators
from tacit.training.settings import Loss

_TORCHS_OWN = set(vars(nn.Module())) - {"_buffers"}
_DEEPEST = 6  # how far into a model's own values state is looked for
_SEEDS = 8
_CALM = 1e3
_NARROWS, _NARROW = {"float", "half", "bfloat16"}, {torch.float32, torch.float16, torch.bfloat16}
_NEAR = 0.05  # as far as half precision may be away
_MIXES = (
    "mixes the examples of a batch: what is computed of an example changes with the others beside it, so that clipping "
    "each example's gradient bounds nothing. Use layers and losses that treat each example by itself, such as "
    "nn.GroupNorm or nn.LayerNorm for normalisation."
)


class _NearError(ConfigError):
    """What the probe has found may be the rounding of half precision."""


@dataclass(frozen=True, kw_only=True)
class _Batch:
    features: Tensor
    labels: Tensor

    def mixed(self, other: _Batch, taken: Tensor) -> _Batch:
        """Return this batch with the examples ``taken`` from the other."""
        return _Batch(
            features=torch.where(_as_rows(taken, self.features), other.features, self.features),
            labels=torch.where(_as_rows(taken, self.labels), other.labels, self.labels),
        )


@dataclass(frozen=True, kw_only=True)
class _Pass:
    rows: list[Tensor]  # outputs and losses, an example first
    gradient: Tensor


def check_examples_apart(model: nn.Module, loss: Loss, features: Tensor, labels: Tensor) -> None:
    """Raise ConfigError where what is computed of an example depends on the rest of its batch, or on earlier ones.

    Args:
        model: the model; copies of it are tried.
        loss: one loss for each example.
        features: of a few examples.
        labels: theirs.
    """
    with in_full_precision():
        try:
            _check(model, loss, *_two_batches(features, labels))
        except _NearError:
            wide = in_double(model, loss, features)
            if wide is None or not _is_apart(*wide, labels):
                raise


def _is_apart(model: nn.Module, loss: Loss, features: Tensor, labels: Tensor) -> bool:
    """Return whether the probe finds nothing in double precision; of a model that can't be computed in it, no."""
    try:
        with Widened():
            _check(model, loss, *_two_batches(features, labels))
    except Exception:  # it has numbers of its own in single precision, or asks for them
        return False
    return True


def in_double(model: nn.Module, loss: Loss, features: Tensor) -> tuple[nn.Module, Loss, Tensor] | None:
    """Return a copy of a model in double precision, with loss and features; None where it shares parts with copies.

    It is to be computed with :class:`Widened`. The loss is that of single precision: it may hold numbers of its own.
    """
    own = copied(model)
    if _memory(own) & _memory(model):  # they would not be what they were
        return None

    def single(value: Tensor) -> Tensor:
        return value.float() if value.is_floating_point() else value

    def narrow(outputs: Any, labels: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            return loss(tree_map_only(Tensor, single, outputs), labels)

    return own.double(), narrow, features.double() if features.is_floating_point() else features


class Widened(TorchFunctionMode):
    """While it is on, who asks for single or half precision has double: a model that casts what it is given, say."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in _NARROWS:
            return args[0].double()
        named = {name: _wide(part) for name, part in (kwargs or {}).items()}
        return func(*map(_wide, args), **named)


def _wide(part: Any) -> Any:
    return torch.float64 if isinstance(part, torch.dtype) and part in _NARROW else part


def _memory(model: nn.Module) -> set[int]:
    """Return what tells whether two models share parts or numbers."""
    tensors = (*model.parameters(), *model.buffers())
    held = {own.untyped_storage().data_ptr() for own in tensors if own.layout == torch.strided and own.numel()}
    return held | {id(own) for own in (*model.modules(), *tensors)}


@contextmanager
def in_full_precision() -> Iterator[None]:
    """Compute float32 as float32, as CPUs do: without cuDNN, whose convolutions round to TF32, and TF32 products.

    Layers that cuDNN can't differentiate in evaluation mode, the recurrent ones, can be differentiated here.
    """
    cudnn = torch.backends.cudnn
    enabled, (precise, as_before) = cudnn.enabled, _precision_of_products()
    try:
        cudnn.enabled = False
        precise()
        yield
    finally:
        cudnn.enabled = enabled
        as_before()


def _precision_of_products() -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what makes products precise, and what brings torch's switch back as it was."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # the precision was set by torch's newer switch, which has to be asked then
        products: Any = torch.backends.cuda.matmul
        own = products.fp32_precision
        return lambda: setattr(products, "fp32_precision", "ieee"), lambda: setattr(products, "fp32_precision", own)
    if before == "highest":
        return lambda: None, lambda: None
    return lambda: torch.set_float32_matmul_precision("highest"), lambda: torch.set_float32_matmul_precision(before)


def _check(model: nn.Module, loss: Loss, batch: _Batch, other: _Batch) -> None:
    modes = [dict.fromkeys(model.modules(), True), {part: part.training for part in model.modules()}]
    for mode in modes if modes[0] != modes[1] else modes[:1]:
        with _mode(model, mode):
            _check_state(model, loss, batch, other)
            _check_rows(model, loss, batch, other)
            _check_alone(model, batch)


def calm(features: Tensor) -> Tensor:
    """Return features none of which is beyond 1,000, each example shrunk as a whole: the probe is about other things.

    It is a copy, which a model may write to.

    >>> calm(torch.tensor([[2e38, -1e38], [3.0, 4.0]])).tolist()
    [[1000.0, -500.0], [3.0, 4.0]]
    """
    if not (features.is_floating_point() and features.numel()):
        return features.detach().clone()
    wide = features.double().nan_to_num().reshape(len(features), -1)
    scale = (_CALM / wide.abs().amax(1, keepdim=True)).clamp(max=1.0)
    return (wide * scale).view(features.shape).to(features.dtype)


def _two_batches(features: Tensor, labels: Tensor) -> tuple[_Batch, _Batch]:
    """Return the examples, and as many others of the same kind."""
    if len(labels) == 1:
        turned = features.flip(-1) if features.is_floating_point() and features.dim() > 1 else features
        features, labels = torch.cat([features, turned]), torch.cat([labels, labels])
    # Others: the first half, each twice and by one further on, so that no statistic of the batch stays as it is.
    order = (torch.arange(len(labels), device=labels.device) // 2 + 1) % len(labels)
    turned = 0.75 * features[order] + 0.25 if features.is_floating_point() else features[order]
    return _Batch(features=features, labels=labels), _Batch(features=turned, labels=labels[order])


def _check_state(model: nn.Module, loss: Loss, batch: _Batch, other: _Batch) -> None:
    """Refuse a model that keeps something of its examples, or whose passes depend on earlier ones."""
    if not _alike(*(_run(copied(model), loss, batch, seed=0) for _ in range(2))):
        raise ConfigError(
            f"The model ({type(model).__name__}) does not compute the same twice of the same examples: it keeps "
            "something of earlier passes out of sight, or draws random numbers that no seed of torch, NumPy or Python "
            "fixes. Whether it keeps examples apart can't be tried then. Keep no data from step to step, and draw with "
            "torch's own functions."
        )
    one, two = copied(model), copied(model)
    for own, history in ((one, batch), (two, other)):
        _run(own, loss, history, seed=0)
    differing = _changed(_kept(one), _kept(two))
    if differing is not None:
        buffers, parameters = dict(model.named_buffers()), dict(model.named_parameters())
        what = "parameter" if differing in parameters else "buffer" if differing in buffers else "attribute"
        raise ConfigError(
            f"The {what} {differing!r} changes with the data in a forward pass, where no clip bounds what one example "
            "does to it. Remove it, or put the layer that keeps it in evaluation mode for good."
        )
    if not _alike(_run(one, loss, batch, seed=1), _run(two, loss, batch, seed=1)):
        raise ConfigError(
            f"What the model ({type(model).__name__}) computes depends on the examples of an earlier pass, where no "
            "clip bounds what one of them does. Keep no data from step to step."
        )


def _check_rows(model: nn.Module, loss: Loss, batch: _Batch, other: _Batch) -> None:
    """Refuse a model or loss in which an example that is exchanged changes what is computed of another."""
    own = copied(model)

    def run(examples: _Batch, seed: int) -> _Pass:
        nonlocal own
        if _changed(_kept(model), _kept(own)) is not None:  # it counts its passes, or the like
            own = copied(model)
        return _run(own, loss, examples, seed=seed)

    seeds = 2 if _alike(run(batch, 0), run(batch, 1)) else _SEEDS
    splits = torch.Generator().manual_seed(1)
    for seed in range(seeds):
        taken = torch.arange(len(batch.labels)) == seed % len(batch.labels)  # one example, or a random half
        if seed % 2:
            taken = torch.randperm(len(taken), generator=splits) < len(taken) // 2
        taken = taken.to(batch.labels.device)
        whole, none = run(batch, seed), run(other, seed)
        left, right = batch.mixed(other, taken), batch.mixed(other, ~taken)
        gradients = [whole.gradient, none.gradient]
        for examples, stays in ((left, ~taken), (right, taken)):
            exchanged = run(examples, seed)
            gradients.append(exchanged.gradient)
            if not _rows_alike(whole.rows, exchanged.rows, stays):
                raise ConfigError(f"{_culprit(model, batch, examples, stays, seed)} {_MIXES}")
        known = torch.stack(gradients).isfinite().all(0)
        mixture = (gradients[0] + gradients[1] - gradients[2] - gradients[3])[known]
        size, most = float(mixture.norm()), max(float(gradient[known].norm()) for gradient in gradients)
        if size > 1e-4 * most:
            raise _error(size <= _NEAR * most)(
                f"The backward pass of the model ({type(model).__name__}) or of its loss {_MIXES}"
            )


def _check_alone(model: nn.Module, batch: _Batch) -> None:
    """Refuse a model that treats an example alone otherwise than in a batch; random numbers hide that."""
    with _mode(model, {part: part.training and not isinstance(part, _DropoutNd) for part in model.modules()}):
        values = [_outputs(model, batch.features, seed) for seed in (0, 1)]
        alone = _outputs(model, batch.features[:1], 0)
    if not _close(values[0], values[1], 1e-3):
        return
    first = [value[:1] for value in values[0]]
    if not _close(first, alone, 1e-3):
        raise _error(_close(first, alone, _NEAR))(f"The model ({type(model).__name__}) {_MIXES}")


def _error(near: bool) -> type[ConfigError]:
    return _NearError if near else ConfigError


def _run(model: nn.Module, loss: Loss, batch: _Batch, *, seed: int) -> _Pass:
    trained = [p for p in model.parameters() if p.requires_grad]
    with seeded(batch.labels.device, seed), torch.enable_grad():
        outputs = model(batch.features.clone())
        losses = loss(outputs, batch.labels.clone())
        if losses.shape != batch.labels.shape[:1]:
            raise ConfigError(
                f"Expected the loss to return one number per example, shape {tuple(batch.labels.shape[:1])}, got "
                f"{tuple(losses.shape)}. Use reduction='none'."
            )
        try:
            found = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
        except RuntimeError as error:
            if "use_reentrant" not in str(error):
                raise
            raise ConfigError(
                f"The model ({type(model).__name__}) computes parts again on the way back by a checkpoint with "
                "use_reentrant=True, which can't tell gradients of examples apart. Give torch.utils.checkpoint "
                "use_reentrant=False."
            ) from error
    flat = [own.double().reshape(-1) for own in found if own is not None]
    rows = [value.detach() for value in [*_tensors(outputs), losses] if value.shape[:1] == losses.shape]
    return _Pass(rows=rows, gradient=torch.cat(flat) if flat else losses.new_zeros(1, dtype=torch.float64))


def _outputs(model: nn.Module, features: Tensor, seed: int) -> list[Tensor]:
    with seeded(features.device, seed), torch.no_grad():
        return [value for value in _tensors(copied(model)(features)) if value.shape[:1] == features.shape[:1]]


def _culprit(model: nn.Module, batch: _Batch, other: _Batch, stays: Tensor, seed: int) -> str:
    """Return the first layer whose output for an example differs though its input does not."""
    calls: list[list[tuple[str, list[Tensor], list[Tensor]]]] = []
    for examples in (batch, other):
        seen: list[tuple[str, list[Tensor], list[Tensor]]] = []
        own = copied(model)
        for name, layer in own.named_modules():
            if next(layer.children(), None) is None:
                layer.register_forward_hook(_listener(name, seen, len(stays)))
        with seeded(examples.labels.device, seed), torch.no_grad():
            own(examples.features)
        calls.append(seen)
    for (name, given, made), (_, same, other_made) in zip(*calls, strict=False):
        if _rows_alike(given, same, stays) and not _rows_alike(made, other_made, stays):
            return f"The layer {name!r} ({type(model.get_submodule(name)).__name__})"
    return f"The model ({type(model).__name__}) or its loss"


def _listener(name: str, seen: list[tuple[str, list[Tensor], list[Tensor]]], examples: int) -> Callable[..., None]:
    def rows(value: object) -> list[Tensor]:
        return [part.clone() for part in _tensors(value) if part.dim() and len(part) == examples]

    def listen(_: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        seen.append((name, rows(inputs), rows(output)))

    return listen


def _tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _alike(one: _Pass, other: _Pass) -> bool:
    return _close(one.rows, other.rows, 1e-4)


def _rows_alike(one: list[Tensor], other: list[Tensor], rows: Tensor) -> bool:
    return _close([value[rows] for value in one], [value[rows] for value in other], 1e-4)


def _close(one: list[Tensor], other: list[Tensor], share: float) -> bool:
    """Return whether values differ by rounding only: by a share of the largest among them."""
    if [value.shape for value in one] != [value.shape for value in other]:
        return False
    for own, same in zip((value.double() for value in one), (value.double() for value in other), strict=True):
        size = float(own.nan_to_num(posinf=0.0, neginf=0.0).abs().amax()) if own.numel() else 0.0
        if not torch.allclose(own, same, rtol=share, atol=share * 0.1 * size, equal_nan=True):
            return False
    return True


def _as_rows(taken: Tensor, value: Tensor) -> Tensor:
    return taken.view(-1, *(1,) * (value.dim() - 1))


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Put every generator a model may draw from at a seed, and bring them back."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []), borrowed_generators(seed):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would load torch's compiler, for seconds
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def _mode(model: nn.Module, training: dict[nn.Module, bool]) -> Iterator[None]:
    """Put every part of the model in training or evaluation mode, and bring it back as it was."""
    before = {part: part.training for part in model.modules()}
    try:
        for part, own in training.items():
            part.training = own
        yield
    finally:
        for part, own in before.items():
            part.training = own


def copied(model: nn.Module, keep: Iterable[Tensor] = ()) -> nn.Module:
    """Return a copy of the model, tensors that are results of computations included; those to keep are not copied."""
    computed = {id(value): value.detach().clone() for _, value in _values(model) if _is_result(value)}
    computed |= {id(value): value for value in keep}
    try:
        return copy.deepcopy(model, computed)
    except Exception as error:  # whatever it keeps that has no copy
        told = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"The model ({type(model).__name__}) can't be copied ({told}), so that nobody can try whether it keeps "
            "examples apart. Keep files, locks and the like out of it."
        ) from error


def alias(model: nn.Module, *, training: bool | None) -> nn.Module:
    """Return a copy with the model's own parameters, in one mode or, if None, as it is."""
    own, users = copied(model, keep=model.parameters()), set(model.modules())
    for part in set(own.modules()) - users:  # a part that is its own copy stays as it is
        part.training = part.training if training is None else training
    return own


def _kept(model: nn.Module) -> dict[str, Any]:
    """Return every number, text and array that the model holds, by name: its own, not copies."""
    return {**dict(model.named_parameters()), **dict(_values(model))}


def _changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """Return the name of something that differs between two models' states, or None."""
    for name in [*one, *other]:
        if name not in one or name not in other or not _same(one[name], other[name]):
            return name
    return None


def _values(model: nn.Module) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for prefix, part in model.named_modules():
        for name, value in vars(part).items():
            if name == "_buffers":
                yield from _leaves(prefix, value, seen, 0)
            elif name not in _TORCHS_OWN:
                yield from _leaves(f"{prefix}.{name}" if prefix else name, value, seen, 0)


def _leaves(name: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Parameter):
        return
    if isinstance(value, (Tensor, bool, int, float, complex, str, bytes, np.generic, np.ndarray)):
        yield name, value
        return
    if depth == _DEEPEST or id(value) in seen or isinstance(value, type):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inner: Iterator[tuple[Any, Any]] = iter(list(value.items()))
    elif isinstance(value, (Sequence, set, frozenset)) or type(value).__name__ == "deque":
        yield f"{name} (length)", len(value)
        inner = enumerate(list(value))
    else:
        inner = iter([(key, own) for key, own in getattr(value, "__dict__", {}).items() if key not in _TORCHS_OWN])
    for key, own in inner:
        yield from _leaves(f"{name}.{key}" if name else str(key), own, seen, depth + 1)


def _is_result(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_leaf


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype and one.layout == other.layout
        return alike and torch.equal(_dense(one).nan_to_num(), _dense(other).nan_to_num())
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and repr(one) == repr(other)  # NaN equals itself here


def _dense(value: Tensor) -> Tensor:
    return value.detach() if value.layout == torch.strided else value.detach().to_dense()
