"""A small model as a straight list of operations that know how to run for many clients at once.

:func:`trace` follows a module with :mod:`torch.fx` and names each step by one of the operations below. A model with
a step that has no name here (a branch on data, a recurrent layer, batch norm, whose statistics mix the examples of
a padded batch) has no program: :class:`NoProgram` says which step and the cohort trains in another form.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.overrides import TorchFunctionMode

from tacit.training.batchable import Attention
from tacit.training.dropout import KeyedDropout, watched_generators
from tacit.training.outputs import unwraps
from tacit.training.parameters import CHANGES, REACHES_PAST, Parameters, hooked
from tacit.training.recurrence import Recurrence
from tacit.training.state import state_of
from tacit.training.straight import FOLLOWING

Pair = tuple[int, int]


class NoProgram(Exception):  # noqa: N818 - an answer, not an error: the caller takes another form
    """The model has a step that no operation covers."""


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A 2-D convolution; weight and bias are numbers of trained slots."""

    weight: int
    bias: int | None
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int


@dataclass(frozen=True, kw_only=True)
class Linear:
    """An affine map of the last axis."""

    weight: int
    bias: int | None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Max or average pooling over windows."""

    function: Callable[..., Tensor]
    kernel: Pair
    stride: Pair
    padding: Pair


@dataclass(frozen=True, kw_only=True)
class Shrink:
    """The mean over windows that make an image so large; ``flat`` where what is left are rows of channels."""

    size: tuple[int | None, int | None]
    flat: bool = False


@dataclass(frozen=True, kw_only=True)
class Pointwise:
    """A function of each element alone."""

    function: Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Combine:
    """A function of two values of one shape, element by element."""

    function: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Keyed dropout; ``site`` is its place among the dropout calls of a forward pass."""

    probability: float
    per_channel: bool
    site: int


@dataclass(frozen=True, kw_only=True)
class Flatten:
    """Images (or any value) to rows, in channel, height, width order."""


@dataclass(frozen=True, kw_only=True)
class GroupNorm:
    """Normalisation over groups of channels, with an optional scale and shift."""

    groups: int
    weight: int | None
    bias: int | None
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class LayerNorm:
    """Normalisation over the last axes of rows, with an optional scale and shift."""

    axes: int
    weight: int | None
    bias: int | None
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """A row of the table for each whole number."""

    weight: int


Operation = (
    Convolution | Linear | Pool | Shrink | Pointwise | Combine | Dropout | Flatten | GroupNorm | LayerNorm | Embedding
)


@dataclass(frozen=True, kw_only=True)
class ProgramStep:
    """One operation on earlier values; value 0 is the input, value ``i`` the result of step ``i - 1``."""

    operation: Operation
    inputs: tuple[int, ...]
    before: tuple[int, ...]  # the shape of its first input, for one example
    shape: tuple[int, ...]  # the shape of its result, for one example


@dataclass(frozen=True, kw_only=True)
class Program:
    """The steps of a model, the last one being its output."""

    steps: tuple[ProgramStep, ...]
    input_shape: tuple[int, ...]

    @property
    def kinds(self) -> frozenset[type[Operation]]:
        """The kinds of operation that occur."""
        return frozenset(type(step.operation) for step in self.steps)


def is_relu(step: ProgramStep) -> bool:
    """Return whether a step is the rectifier."""
    function = step.operation.function if isinstance(step.operation, Pointwise) else None
    return isinstance(function, nn.ReLU) or function in (torch.relu, F.relu)


def is_relu6(step: ProgramStep) -> bool:
    """Return whether a step is the rectifier that ends at six."""
    function = step.operation.function if isinstance(step.operation, Pointwise) else None
    return isinstance(function, nn.Hardtanh) and (function.min_val, function.max_val) == (0.0, 6.0)


_POINTWISE_MODULES = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus,
    nn.Hardtanh, nn.Hardswish, nn.Identity,
)  # fmt: skip
_POINTWISE_FUNCTIONS = {
    F.relu, torch.relu, F.leaky_relu, F.elu, F.selu, F.gelu, F.silu, F.mish, F.softplus, F.hardtanh, F.hardswish,
    torch.tanh, F.tanh, torch.sigmoid, F.sigmoid,
}  # fmt: skip
_POINTWISE_METHODS = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "contiguous": torch.clone,
}
_RESHAPES = {torch.flatten, torch.reshape, "view", "reshape", "flatten"}
_COMBINES: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
    operator.add: torch.add,
    torch.add: torch.add,
    operator.mul: torch.mul,
    torch.mul: torch.mul,
}
_DROPOUTS = {F.dropout: False, F.dropout1d: True, F.dropout2d: True, F.dropout3d: True}
_POOL_SETTINGS = {
    "dilation": 1,
    "ceil_mode": False,
    "return_indices": False,
    "count_include_pad": True,
    "divisor_override": None,
}
_MEANS = {torch.mean, "mean"}
_ON_IMAGES = (Convolution, Pool, Shrink, GroupNorm)  # values of three axes are images: channels, height, width
_ON_ANY = (Pointwise, Combine, Dropout, Flatten)
_EXAMPLES = 3  # a batch size no model's own sizes are mistaken for


def _modes() -> tuple[bool, ...]:
    return torch.is_grad_enabled(), *(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))


class _Value(fx.Proxy):
    """Stands for a value in a trace, which would not hold what is put in the place of its numbers."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("data", "grad", "requires_grad"):
            raise NoProgram(f"it sets .{name} of a tensor")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        _check_single(self)
        return super().__len__()


class _Tracer(fx.Tracer):
    """Follows the modules that its own thread calls; a trace changes what a call is for all threads."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = get_ident()
        self._modes = _modes()

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        own = get_ident() == self._thread
        return super().call_module(m, forward, args, kwargs) if own else forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        own = get_ident() == self._thread
        return super().getattr(attr, attr_val, parameter_proxy_cache) if own else attr_val

    def create_node(self, *given: Any, **named: Any) -> fx.Node:
        """Write an operation down; under which modes it is to compute, nobody could write down."""
        if _modes() != self._modes:
            raise NoProgram("it stops gradients, or changes their precision, in a part of its pass")
        return super().create_node(*given, **named)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """Leave what a pass may be given besides its input at what it is when nobody gives it."""
        function, given = super().create_args_for_root(root_fn, is_module, concrete_args)
        usual = {name: own.default for name, own in inspect.signature(root_fn).parameters.items()}
        stands = [place for place, own in enumerate(given) if isinstance(own, fx.Proxy)]
        for place in stands[1:]:
            name = given[place].node.target
            if usual.get(name, inspect.Parameter.empty) is not inspect.Parameter.empty:
                self.graph.erase_node(given[place].node)
                given[place] = usual[name]
        return function, given

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return what stands for a value."""
        return _Value(node, self)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """Refuse to go through a value, of which a trace knows no parts."""
        _check_single(obj)
        return super().iter(obj)

    def keys(self, obj: fx.Proxy) -> Any:
        """Write down a call of ``keys``, which ``**`` makes as well."""
        _check_single(obj)
        return super().keys(obj)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        whole = isinstance(m, KeyedDropout | Recurrence | Attention)
        return whole or super().is_leaf_module(m, module_qualified_name)


def _check_single(value: fx.Proxy) -> None:
    """Refuse ``*args`` and ``**kwargs`` of the model's own pass, for each of which a trace has one value."""
    name = str(value.node.target)
    if value.node.op == "placeholder" and name.startswith("*"):
        raise NoProgram(f"its forward pass takes {name}, which can't be followed")


def graph_of(module: nn.Module) -> fx.GraphModule:
    """Trace ``module``, and give every dropout call a keyed layer of its own, ``F.dropout`` too."""
    if hooked([module]):  # tracing begins inside it
        raise NoProgram(f"the model {'returns its logits under a name' if unwraps(module) else 'has torch hooks'}")
    held, before = state_of(module), set(vars(module))
    with FOLLOWING, _put_back(module):
        try:
            graph = _Tracer().trace(module)
            traced = fx.GraphModule(module, graph)
        except Exception as error:
            raise NoProgram(f"it can't be traced: {_untraceable(error)}") from error
        constants = [vars(module).pop(name) for name in set(vars(module)) - before]  # what tracing left there
        changed = state_of(module) != held or not all(isinstance(own, Tensor) for own in constants)
    if any(isinstance(own, Tensor) and own.requires_grad for own in constants):
        raise NoProgram(REACHES_PAST)
    if changed:
        raise NoProgram(CHANGES)
    site = 0
    for node in list(graph.nodes):
        settings = _dropout_settings(traced, node)
        if settings is None:
            continue
        name = f"keyed_dropout_{site}"
        traced.add_submodule(name, KeyedDropout(**settings, site=site))
        if node.op == "call_function" or traced.get_submodule(str(node.target)).site != site:
            traced.meta["drops"] = True
        with graph.inserting_after(node):
            replacement = graph.call_module(name, (node.args[0] if node.args else node.kwargs["input"],))
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)
        site += 1
    traced.delete_all_unused_submodules()
    _hold_all(traced, module)
    traced.recompile()
    return traced


def _hold_all(traced: fx.GraphModule, module: nn.Module) -> None:
    """Give a trace what its passes leave aside too: it is sent, and has a place in the model's vector."""
    held = {name for name, _ in (*traced.named_parameters(), *traced.named_buffers())}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        above, _, own = name.rpartition(".")
        if name in held or isinstance(module.get_submodule(above), KeyedDropout):
            continue
        if all(above != part for part, _ in traced.named_modules()):
            traced.add_submodule(above, nn.Module())
        parent = traced.get_submodule(above)
        if isinstance(tensor, nn.Parameter):
            parent.register_parameter(own, tensor)
        else:
            of = module.get_submodule(above)
            parent.register_buffer(own, tensor, persistent=own not in of._non_persistent_buffers_set)


def check_alike(module: nn.Module, traced: fx.GraphModule, examples: Tensor) -> None:
    """Refuse a trace that computes something else than the module it was made of, dropout aside.

    What stands for the input in a trace is no tensor: who asks it what it is may be answered otherwise. Parameters, of
    which both have the same, are moved for as long as it takes, as zeros would hide what a branch does.
    """
    draw, found = torch.Generator().manual_seed(0), list[list[Tensor | None]]()
    trained = [own for own in module.parameters() if own.requires_grad]
    moved = [(own, own.detach().clone()) for own in module.parameters() if own.is_floating_point()]
    dropouts = {own for part in (module, traced) for own in part.modules() if isinstance(own, KeyedDropout)}
    on = [own for own in dropouts if own.training]
    with _put_back(module), _Undropped():
        try:
            with torch.no_grad():
                for own, _ in moved:
                    own.add_(0.1 * torch.randn(own.shape, generator=draw).to(own))
            for dropout in on:
                dropout.training = False
            for run in (module, fx.Interpreter(traced).run):  # which prints nothing where it fails
                with watched_generators(examples.device), torch.enable_grad():
                    outputs = run(examples.clone())
                    gradients = torch.autograd.grad(outputs.sum(), trained, allow_unused=True)
                found.append([outputs.detach(), *gradients])
        except Exception as error:
            raise NoProgram(f"a trace of it can't be compared with it ({_first_line(error)})") from error
        finally:
            with torch.no_grad():
                for own, before in moved:
                    own.copy_(before)
            for dropout in on:
                dropout.training = True
    if not alike(*found):
        raise NoProgram("a trace of it computes something else: it asks what its input is")


def alike(ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> bool:
    """Return whether outputs, and gradients behind them, differ by rounding only; None is as good as zeros.

    Gradients by a share of the largest of all: what cancels, such as that of a bias before a norm, is rounding alone.
    """
    most = max((_largest(own) for own in ours[1:] if own is not None), default=0.0)
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one is None or other is None:
            rest = other if one is None else one
            if rest is not None and bool(rest.any()):
                return False
            continue
        one, other = one.to_dense(), other.to_dense()  # noqa: PLW2901 - gradients of a table may leave out zeros
        share = 1e-4 * (most if number else _largest(one))
        if one.shape != other.shape or not torch.allclose(one, other, rtol=1e-3, atol=share, equal_nan=True):
            return False
    return True


def _largest(tensor: Tensor) -> float:
    """Return how large the largest of the finite numbers is."""
    sizes = tensor.to_dense().abs().nan_to_num(nan=0.0, posinf=0.0)
    return float(sizes.max()) if sizes.numel() else 0.0


class _Undropped(TorchFunctionMode):
    """Leaves functional dropout out."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _DROPOUTS:
            return args[0] if args else (kwargs or {})["input"]
        return func(*args, **(kwargs or {}))


@contextmanager
def _put_back(module: nn.Module) -> Iterator[None]:
    """Put back afterwards what a pass writes to a model meanwhile, which in a trace are no tensors."""
    parts = [(vars(part), dict(vars(part))) for part in module.modules()]
    inside = [(own, copy.copy(own)) for _, held in parts for own in held.values() if type(own) in (dict, list, set)]
    buffers = [(own, own.clone(), own._version) for own in module.buffers()]
    try:
        yield
    finally:
        for own, before, version in buffers:
            if own._version != version:
                own.copy_(before)
        for container, held in (*inside, *parts):
            container.clear()
            if isinstance(container, list):
                container.extend(held)
            else:
                container.update(held)


def drops_anew(traced: fx.GraphModule) -> bool:
    """Return whether dropout has other keys in a traced module than in what it was traced from.

    Functions have layers of their own there, and so has each call of a layer that is called several times, or in
    another order than the model holds its layers.
    """
    return bool(traced.meta.get("drops"))


def _dropout_settings(traced: fx.GraphModule, node: fx.Node) -> dict[str, Any] | None:
    """Return what a dropout call that is on does, None for any other node."""
    if node.op == "call_module":
        layer = traced.get_submodule(str(node.target))
        names = ("probability", "per_channel", "inplace")
        return {name: getattr(layer, name) for name in names} if isinstance(layer, KeyedDropout) else None
    if node.op == "call_function" and node.target in _DROPOUTS:
        options = dict(zip(("p", "training", "inplace"), node.args[1:], strict=False)) | node.kwargs
        probability, inplace = options.get("p", 0.5), options.get("inplace", False)
        settings = {"probability": probability, "per_channel": _DROPOUTS[node.target], "inplace": inplace}
        return settings if options.get("training", True) else None
    return None


def trace(traced: fx.GraphModule, layout: Parameters, example: Tensor) -> Program:
    """Name every step of a traced module.

    Args:
        traced: what :func:`graph_of` returned.
        layout: the module's vector; weights are named by their place among the trained slots.
        example: one example (without a batch axis), for the shapes.
    """
    if sum(node.op == "placeholder" for node in traced.graph.nodes) > 1:
        raise NoProgram("it takes more than one input")
    batch = example.expand(_EXAMPLES, *example.shape)
    try:
        with torch.no_grad(), _put_back(traced):
            fx.Interpreter(traced).run(
                batch.clone()
            )  # a module, and ShapeProp, would print a traceback where this fails
            ShapeProp(traced).propagate(batch.clone())
    except Exception as error:
        raise NoProgram(f"its shapes can't be followed ({_first_line(error)})") from error
    slots = {slot.name: number for number, slot in enumerate(layout.trained)}
    values: dict[fx.Node, int] = {}
    steps: list[ProgramStep] = []
    for node in traced.graph.nodes:
        meta = node.meta.get("tensor_meta")
        if node.op == "placeholder":
            values[node] = 0
        elif node.op == "output":
            output = node.args[0]
            if not isinstance(output, fx.Node) or values.get(output) != len(steps):
                raise NoProgram("its output is not its last step")
        elif not isinstance(meta, fx.passes.shape_prop.TensorMetadata):
            continue  # a size that a reshape uses
        else:
            sources = [a for a in node.args if isinstance(a, fx.Node) and a in values]
            operation = _operation(traced, node, slots) if sources else None  # an input by keyword is not followed
            if operation is None:
                raise NoProgram(f"{node.op.removeprefix('call_')} {_name(traced, node)} has no rule")
            if meta.shape[0] != _EXAMPLES:
                raise NoProgram(f"{node} changes the batch axis")
            before, shape = (tuple(n.meta["tensor_meta"].shape[1:]) for n in (sources[0], node))
            wrong = (len(before) == 3) != isinstance(operation, _ON_IMAGES) and not isinstance(operation, _ON_ANY)
            flat = isinstance(operation, Flatten) or (isinstance(operation, Shrink) and operation.flat)
            if wrong or (len(shape) == 3) != (len(before) == 3 and not flat):
                raise NoProgram(f"{_name(traced, node)} of a value of shape {before} has no rule")
            inputs = tuple(values[source] for source in sources)
            steps.append(ProgramStep(operation=operation, inputs=inputs, before=before, shape=shape))
            values[node] = len(steps)
    _check_all_take_part(steps, layout)
    return Program(steps=tuple(steps), input_shape=tuple(example.shape))


def _check_all_take_part(steps: Sequence[ProgramStep], layout: Parameters) -> None:
    taken = {value for step in steps for value in step.inputs}
    if any(number not in taken for number in range(1, len(steps))):
        raise NoProgram("the result of a step is not used")
    used = {slot for step in steps for slot in _weights(step.operation)}
    idle = [slot.name for number, slot in enumerate(layout.slots) if number not in used]
    if idle:
        raise NoProgram(f"{idle[0]} takes no part in its output")


_UNTRACEABLE = (  # what torch.fx says, and what it means for a model
    ("'len' is not supported", "it takes len() of a tensor; x.shape[0] or x.size(0) can be followed"),
    ("cannot be iterated", "it loops over a tensor"),
    ("control flow", "it branches on values that are known only when it runs"),
)


def _untraceable(error: Exception) -> str:
    told = _first_line(error)
    return next((words for sign, words in _UNTRACEABLE if sign in told), told)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _weights(operation: Operation) -> set[int]:
    """Return the trained slots that an operation uses."""
    slots = (getattr(operation, name, None) for name in ("weight", "bias"))
    return {slot for slot in slots if slot is not None}


def _operation(traced: fx.GraphModule, node: fx.Node, slots: dict[str, int]) -> Operation | None:
    if _in_place(traced, node) and any(_seen_elsewhere(traced, given) for given in node.all_input_nodes):
        raise NoProgram(f"{_name(traced, node)} changes in place what another step uses")
    if node.op == "call_module":
        return _of_module(traced.get_submodule(str(node.target)), str(node.target), slots)
    return _of_call(node)


def _name(traced: fx.GraphModule, node: fx.Node) -> str:
    if node.op == "call_module":
        return type(traced.get_submodule(str(node.target))).__name__
    return str(getattr(node.target, "__name__", node.target))


def _check_parameters(module: nn.Module, name: str, slots: dict[str, int]) -> None:
    """Refuse a layer whose weights are not its own trained slots, or that torch's hooks change."""
    if any(not p.requires_grad for p in module.parameters()):
        raise NoProgram(f"{name} has frozen parameters")
    if any(f"{name}.{own}" not in slots for own, _ in module.named_parameters()):
        raise NoProgram(f"{name} shares parameters with another layer")
    if hooked([module]):
        raise NoProgram(f"{name} has torch hooks of its own")
    if "forward" in vars(module):
        raise NoProgram(f"{name} has a forward pass of its own")


def _is_a_map(layer: nn.Linear) -> bool:
    """Return whether a layer has a weight for each pair of input and output, and a bias for each output or none.

    PyTorch spreads a single bias over all outputs, and takes a row of weights without an axis of outputs. Layers of its
    own that round as they train are linear ones by name.
    """
    if type(layer).forward is not nn.Linear.forward:
        return False
    return layer.weight.dim() == 2 and (layer.bias is None or layer.bias.shape == layer.weight.shape[:1])


def _of_module(module: nn.Module, name: str, slots: dict[str, int]) -> Operation | None:  # noqa: PLR0911 - a table of rules
    weight, bias = slots.get(f"{name}.weight"), slots.get(f"{name}.bias")
    _check_parameters(module, name, slots)
    match module:
        case nn.Conv2d(padding_mode="zeros", padding=(int(), int())) if weight is not None:
            return Convolution(
                weight=weight, bias=bias, stride=_pair(module.stride), padding=_pair(module.padding),
                dilation=_pair(module.dilation), groups=module.groups,
            )  # fmt: skip
        case nn.Linear() if weight is not None and _is_a_map(module):
            return Linear(weight=weight, bias=bias)
        case nn.MaxPool2d(dilation=1, ceil_mode=False, return_indices=False):
            return _pool(F.max_pool2d, module.kernel_size, module.stride, module.padding)
        case nn.AvgPool2d(ceil_mode=False, count_include_pad=True, divisor_override=None):
            return _pool(F.avg_pool2d, module.kernel_size, module.stride, module.padding)
        case nn.AdaptiveAvgPool2d(output_size=size):
            return Shrink(size=_sides(size))
        case KeyedDropout():
            return Dropout(probability=module.probability, per_channel=module.per_channel, site=module.site)
        case nn.Flatten(start_dim=1, end_dim=-1):
            return Flatten()
        case nn.GroupNorm():
            return GroupNorm(groups=module.num_groups, weight=weight, bias=bias, epsilon=module.eps)
        case nn.LayerNorm():
            return LayerNorm(axes=len(module.normalized_shape), weight=weight, bias=bias, epsilon=module.eps)
        case nn.Embedding(padding_idx=None, max_norm=None, scale_grad_by_freq=False, sparse=False) if (
            weight is not None
        ):
            return Embedding(weight=weight)
        case _ if isinstance(module, _POINTWISE_MODULES):
            return Pointwise(function=_out_of_place(module))
    return None


def _out_of_place(module: nn.Module) -> nn.Module:
    """Return a layer that leaves its input as it is: kernels may keep that for the backward pass."""
    if not getattr(module, "inplace", False):
        return module
    own: Any = copy.copy(module)
    own.inplace = False
    made: nn.Module = own
    return made


def _in_place(traced: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return bool(getattr(traced.get_submodule(str(node.target)), "inplace", False))
    if node.op != "call_function" or node.target not in _POINTWISE_FUNCTIONS:
        return False
    names = list(inspect.signature(node.target).parameters) if node.args[1:] else []
    return bool((dict(zip(names, node.args, strict=False)) | node.kwargs).get("inplace", False))


def _seen_elsewhere(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether more than one step uses a value, or what it may be another name of."""
    while len(node.users) == 1 and _renames(traced, node):
        node = node.all_input_nodes[0]
    return len(node.users) > 1


def _renames(traced: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(traced.get_submodule(str(node.target)), nn.Flatten | nn.Identity | KeyedDropout)
    return node.target in _RESHAPES or node.target == "contiguous"


def _of_call(node: fx.Node) -> Operation | None:  # noqa: PLR0911 - a table of rules
    target: Any = node.target
    tensors = [a for a in node.args if isinstance(a, fx.Node) and "tensor_meta" in a.meta]
    if target in _RESHAPES:
        if any(isinstance(own, torch.dtype) for own in (*node.args, *node.kwargs.values())):
            return None  # the same bits as other numbers, through which there is no gradient
        before, after = tensors[0].meta["tensor_meta"].shape, node.meta["tensor_meta"].shape
        return Flatten() if tuple(after) == (before[0], before[1:].numel()) else None
    others = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, fx.Node) and a not in tensors]
    if others:  # a setting that depends on the data's sizes
        return None
    if target in _POINTWISE_METHODS and node.op == "call_method":
        return Pointwise(function=_POINTWISE_METHODS[target])
    if target in _POINTWISE_FUNCTIONS:
        names = list(inspect.signature(target).parameters)[1:] if node.args[1:] else []
        options = dict(zip(names, node.args[1:], strict=False)) | node.kwargs
        options = {key: value for key, value in options.items() if key not in ("input", "inplace")}
        return Pointwise(function=functools.partial(target, **options) if options else target)
    if target in _COMBINES and len(tensors) == 2 and not node.kwargs:
        same = tensors[0].meta["tensor_meta"].shape == tensors[1].meta["tensor_meta"].shape
        return Combine(function=_COMBINES[target]) if same else None
    if target in _MEANS:
        return _mean(node, tensors)
    if target is F.adaptive_avg_pool2d:
        options = dict(zip(("output_size",), node.args[1:], strict=False)) | node.kwargs
        return Shrink(size=_sides(options["output_size"])) if set(options) == {"output_size"} else None
    if target in (F.max_pool2d, torch.max_pool2d, F.avg_pool2d):
        settings = ("kernel_size", "stride", "padding")
        options = dict(zip(settings, node.args[1:], strict=False)) | node.kwargs
        if len(node.args) > 4 or any(options.get(key, usual) != usual for key, usual in _POOL_SETTINGS.items()):
            return None
        function = F.avg_pool2d if target is F.avg_pool2d else F.max_pool2d
        return _pool(function, options["kernel_size"], options.get("stride"), options.get("padding", 0))
    return None


def _mean(node: fx.Node, tensors: Sequence[fx.Node]) -> Operation | None:
    """Return the mean over height and width, of an image."""
    options = dict(zip(("dim", "keepdim"), node.args[1:], strict=False)) | node.kwargs
    dims, axes = options.pop("dim", None), len(tensors[0].meta["tensor_meta"].shape)
    kept = options.pop("keepdim", False)
    if options or axes != 4 or not isinstance(dims, tuple | list) or {dim % 4 for dim in dims} != {2, 3}:
        return None
    return Shrink(size=(1, 1), flat=not kept)


def _sides(size: Any) -> tuple[int | None, int | None]:
    return (size[0], size[1]) if isinstance(size, tuple | list) else (size, size)


def _pool(function: Callable[..., Tensor], kernel: Any, stride: Any, padding: Any) -> Pool:
    return Pool(function=function, kernel=_pair(kernel), stride=_pair(stride or kernel), padding=_pair(padding))


def _pair(value: Any) -> Pair:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))
