"""A step of many clients as one straight program: losses and gradients without autograd, vmap or Python in between.

Of a tiny model's step, nearly all goes on calling operations: Python, autograd's bookkeeping and vmap's rules take
several microseconds for an operation that computes in one. A :class:`StraightStep` follows a step once, forwards and
backwards, writes its operations down one after the other as TorchScript, and computes later steps of the same shapes by
that: the same operations in the same order, and so the same numbers, bit for bit, at a third of the cost; and threads
beside it need not wait for Python's lock. Many steps of plain SGD are one call (:meth:`StraightStep.descent`).

Following a step takes some tenths of a second, as long as some hundred steps. It is done between rounds, for shapes
that keep coming. A program whose numbers differ from those of the step it was made of is not used, and there is none of
a step in which anybody asks a tensor for its numbers: a program would go on by the answer, whatever it is given. It
would go on by what a model and a loss held when it was made, too: where that changes, steps are computed plainly.

Where a model looks at one place of its texts, a program can leave the others out (:mod:`tacit.training.narrow`). Its
numbers differ in their last bits, and so do those of native calls (:mod:`tacit.training.native.steps`). A run gives the
same wherever it is stopped and resumed, so such a program is made before the first step of its shape
(:meth:`StraightStep.begin`), or never.
"""

from __future__ import annotations

import copy
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.jit._fuser import optimized_execution
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.training.narrow import narrowed
from tacit.training.native.steps import NativeSteps, native_steps
from tacit.training.parameters import hooked
from tacit.training.simpler import simplify
from tacit.training.state import state_of

Given = tuple[Tensor | None, ...]
Step = Callable[..., list[Tensor]]

FOLLOWING = threading.RLock()  # following a pass changes modules of torch's for as long as it takes
_USES = 16  # steps of a shape before a program is made for it
_MOST_PROGRAMS, _MOST_SHAPES = 8, 64  # a ragged federation has many shapes
_SAME = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}  # another name for their input
_CLOSE = 1e-3  # of the largest number; in a batch of a few dozen, sums in another order differ by less than 1e-5
_ASKS = {"item", "tolist", "numpy", "__array__", "__dlpack__", "__repr__", "__format__"}
_ASKS |= {"__bool__", "__int__", "__float__", "__index__", "__complex__"}


@dataclass(kw_only=True)
class _Shape:
    uses: int = 0
    program: Program | None = None
    example: Given | None = None
    failed: bool = False


class StraightStep:
    """Computes a step plainly until there is a program for its shapes, and by the program from then on.

    Args:
        step: computes tensors of tensors, of which some may be None; it is called in any thread, and followed in the
            thread of :meth:`make`.
        module: what the step runs: where a pass changes a number that it holds, no program is made.
        loss: the same.
        uses: how many steps of a shape come before a program is made for it.
        descends: whether :meth:`descent` is asked for.
    """

    def __init__(
        self, step: Step, module: nn.Module, *, loss: Any = None, uses: int = _USES, descends: bool = False
    ) -> None:
        self._step = step
        self._module = module
        self._loss = loss
        self._held: list[Any] = []  # by model and loss, as the programs take it for granted
        self._uses = uses
        self._descends = descends
        self._shapes: dict[tuple[Any, ...], _Shape] = {}

    def __call__(self, *given: Tensor | None) -> list[Tensor] | None:
        """Return what the step computes, or None where it is to be computed plainly."""
        key = tuple(None if part is None else _known_by(part) for part in given)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _MOST_SHAPES:
                return None
            shape = self._shapes.setdefault(key, _Shape())
        if shape.program is not None:
            return shape.program.run([part for part in given if part is not None])
        shape.uses += 1
        if shape.uses >= self._uses and shape.example is None and not shape.failed:
            shape.example = tuple(None if part is None else _copied(part) for part in given)
        return None

    def descent(
        self,
        parameters: Sequence[Tensor],
        features: Tensor,
        labels: Tensor,
        rows: Tensor,
        keys: Tensor,
        rate: float,
        total: Tensor,
        beside: Sequence[Tensor] = (),
    ) -> bool:
        """Take many steps of plain SGD without coming back to Python; return whether there is a program for them.

        The step is one of given parameters, what is beside them, features, labels, None and keys, and returns losses
        and gradients.

        Args:
            parameters: of the clients; moved in place.
            features: what the rows point to.
            labels: the same.
            rows: of every step, ``(S, K, B)``, or ``(S, B)`` of one client.
            keys: of every step, ``(S, K)`` or ``(S,)``.
            rate: the learning rate.
            total: of each client; the losses of its examples are added to it.
            beside: what else a step is given, and changes by itself.
        """
        batches = ((rows.shape[1:] + part.shape[1:], part.dtype) for part in (features, labels))
        laid = [(shape, _contiguous(shape), kind) for shape, kind in batches]
        key = (*map(_known_by, (*parameters, *beside)), *laid, None, _known_by(keys[0]))
        shape = self._shapes.get(key)
        if shape is None or shape.program is None:
            return False
        shape.program.descend(parameters, beside, features, labels, rows, keys, rate, total)
        return True

    def begin(self, *given: Tensor | None) -> bool:
        """Make a program for a shape at once, where one can compute less than the step does, or by native calls.

        Args:
            given: an example; whether there is a program depends on its shapes, not on what is in it.

        Returns:
            Whether many steps are native calls now.
        """
        with torch.enable_grad(), _Looked() as mode:  # type: ignore[no-untyped-call]  # torch gives it no types
            self._step(*given)
        if not mode.met and not self._descends:
            return False
        key = tuple(None if part is None else _known_by(part) for part in given)
        program = self._tried(tuple(given), begins=True)
        if program is None:
            return False
        self._shapes.setdefault(key, _Shape()).program = program
        return program.is_native

    @property
    def due(self) -> bool:
        """Whether a program is to be made."""
        return any(shape.example is not None for shape in self._shapes.values())

    def make(self) -> None:
        """Make the programs that are due, and leave those that took for granted what is no longer so.

        Nothing of the step may run beside.
        """
        shapes = list(self._shapes.values())  # somebody may still train whose round was interrupted
        if any(shape.program is not None for shape in shapes) and self._state(written=False) != self._held:
            for shape in shapes:
                shape.program, shape.example, shape.failed = None, None, True
        for shape in shapes:
            if shape.example is None:
                continue
            if sum(own.program is not None for own in self._shapes.values()) >= _MOST_PROGRAMS:
                shape.failed, shape.example = True, None
                continue
            shape.program = self._tried(shape.example)
            shape.failed, shape.example = shape.program is None, None

    def _tried(self, example: Given, *, begins: bool = False) -> Program | None:
        try:
            return self._made(example, begins=begins)
        except Exception:  # somebody else's model and loss: whatever can't be followed is computed plainly
            return None

    def _made(self, example: Given, *, begins: bool) -> Program | None:
        from torch.fx.experimental.proxy_tensor import make_fx  # loads more of torch than a short run needs

        present = [part for part in example if part is not None]
        traced, run, computed = ([_copied(part) for part in present] for _ in range(3))  # a step may write to them

        def followed(*parts: Tensor) -> list[Tensor]:
            own = iter(parts)
            return self._step(*(None if part is None else next(own) for part in example))

        if hooked(list(self._module.modules())):
            return None
        before = self._state()
        with FOLLOWING, unasked():
            graph = make_fx(followed)(*traced)
        if self._state() != before:
            return None
        self._held = self._state(written=False)  # a program reads tensors where they lie
        less = narrowed(graph, present) if begins else None
        descends = self._descends and example[-2] is None
        native = native_steps(less or graph, present) if begins and descends else None
        if begins and less is None and native is None:
            return None  # what gives the same numbers, bit for bit, has time
        whole = less or graph
        shorter = fx.GraphModule(whole, copy.deepcopy(whole.graph))  # native calls are told by the whole
        simplify(shorter, present)
        program = compiled(shorter, descends=descends, native=native)
        agree = _close if less is not None else _same
        plain, found = followed(*computed), program.run(run)
        pairs = zip((*found, *run), (*plain, *computed), strict=True)
        if not all(agree(ours, theirs) for ours, theirs in pairs):
            return None
        return program if native is None or _descends_alike(program, present, plain) else None

    def _state(self, *, written: bool = True) -> list[Any]:
        return state_of(self._module, self._loss, written=written)


def _same(ours: Tensor, plain: Tensor) -> bool:
    ours, plain = (torch.view_as_real(own.resolve_conj()) if own.is_complex() else own for own in (ours, plain))
    return bool((((ours == plain) & (ours.signbit() == plain.signbit())) | (ours.isnan() & plain.isnan())).all())


def _close(ours: Tensor, plain: Tensor, of: Tensor | None = None) -> bool:
    """Return whether numbers are the same up to the order of sums; rules are exact, and this is for what has none.

    With ``of`` ours are what was taken away from it, and rounded so.
    """
    rounding = 0.0 if of is None else torch.finfo(of.dtype).eps * of.abs().max()
    most = _CLOSE * plain.abs().max() + rounding
    return ours.shape == plain.shape and bool((ours - plain).abs().max() <= most)


class _AskedError(RuntimeError):
    """A step has asked a tensor for its numbers."""


@contextmanager
def unasked() -> Iterator[None]:
    """While it is on, whoever asks a tensor of this thread for its numbers, or how many of a kind there are, fails.

    Following a step takes such an answer for granted: of an input a program would do forever what the batch that was
    followed said, which is wrong for any other batch, and would let an example into steps that it has no part in. Torch
    refuses some of the questions; lists, arrays, buffers' numbers and lengths of selections it answers.
    """
    with _NoLists(), _NoSelections():  # type: ignore[no-untyped-call]  # torch gives it no types
        yield


class _NoLists(TorchFunctionMode):
    """Refuses what reads or changes a tensor without an operation."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        by_tensor = name == "tensor_split" and any(
            isinstance(own, Tensor) for own in (*args[1:], *(kwargs or {}).values())
        )
        if name in _ASKS or by_tensor or (name == "__set__" and func.__self__ is Tensor.data):
            raise _AskedError(name)
        return func(*args, **(kwargs or {}))


class _NoSelections(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives it no types
    """Refuses operations whose result is a number of Python's, or as long as the numbers say."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        by_numbers = torch.Tag.dynamic_output_shape in func.tags
        if func is torch.ops.aten.index.Tensor:  # the places are counted where they are given as a mask
            by_numbers = any(own is not None and own.dtype in (torch.bool, torch.uint8) for own in args[1])
        if by_numbers or torch.Tag.data_dependent_output in func.tags:
            raise _AskedError(str(func))
        return func(*args, **(kwargs or {}))


class _Looked(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives it no types
    """Says whether a step takes one place of texts, and hands a gradient back to it: ``met``."""

    met = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.met |= func is torch.ops.aten.select_backward.default and len(args[1]) > 2
        return func(*args, **(kwargs or {}))


def _copied(part: Tensor) -> Tensor:
    """Return a copy that lies in memory as the tensor does: operations choose how their results lie by that."""
    own = torch.empty_strided(part.shape, part.stride(), dtype=part.dtype)
    return own.copy_(part.detach())


def _known_by(part: Tensor) -> tuple[torch.Size, tuple[int, ...], torch.dtype]:
    return part.shape, part.stride(), part.dtype


def _contiguous(shape: torch.Size) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps."""
    return torch.empty(shape, device="meta").stride()


def _descends_alike(program: Program, given: Sequence[Tensor], plain: Sequence[Tensor]) -> bool:
    """Return whether a step by native calls takes a model where the plain step's gradients would."""
    *own, features, labels, keys = [_copied(part) for part in given]
    before = [part.clone() for part in own]
    count, total = labels.shape[1], torch.zeros(1)
    # Behind others, and from the last to the first: a list that reads other examples than those is not alike.
    whole = [torch.cat([part[0].roll(1, 0), part[0]]) for part in (features, labels)]
    rows = torch.arange(2 * count - 1, count - 1, -1).view(1, 1, count)
    if not program.descend_natively(own, *whole, rows, keys[None], 1.0, total):
        return False
    moved = [start - part for start, part in zip(before, own, strict=True)]
    losses, *gradients = plain
    pairs = zip(moved, gradients, before, strict=True)
    return _close(total / count, losses) and all(_close(ours, theirs, of=start) for ours, theirs, start in pairs)


class Program:
    """A step as TorchScript, many of them as native calls where possible; Python's lock is needed at both ends only."""

    def __init__(self, unit: Any, constants: list[Tensor], native: Callable[[], NativeSteps] | None) -> None:
        self._unit, self._constants = unit, constants
        self._native = native
        self._own = threading.local()  # room for native calls

    @property
    def is_native(self) -> bool:
        """Whether many steps are native calls."""
        return self._native is not None

    def run(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Return what the step computes."""
        # Without its optimiser TorchScript computes what is written, and nothing is compiled after some calls.
        # Nothing that comes back is differentiated, and without autograd's books operations begin sooner.
        with torch.inference_mode(), optimized_execution(False):
            found: list[Tensor] = self._unit.step(*given, *self._constants)
            return found

    def descend(self, parameters: Sequence[Tensor], beside: Sequence[Tensor], *given: Tensor | float) -> None:
        """Take many steps: see :meth:`StraightStep.descent`."""
        if self.descend_natively(parameters, *given):
            return
        with torch.inference_mode(), optimized_execution(False):
            self._unit.descend([own.detach() for own in parameters], list(beside), *given, self._constants)

    def descend_natively(self, parameters: Sequence[Tensor], *given: Any) -> bool:
        """Take many steps by native calls alone; return whether they could be taken."""
        if self._native is None:
            return False
        features, labels, rows, _, rate, total = given
        own: NativeSteps | None = getattr(self._own, "steps", None)
        if own is None:
            own = self._own.steps = self._native()
        return own.descend(parameters, features, labels, rows, rate, total)


# The parameters are a list of their own: of a list's part that is moved in place TorchScript moves nothing.
_DESCEND = """
def descend(own: List[Tensor], beside: List[Tensor], features: Tensor, labels: Tensor, rows: Tensor, keys: Tensor,
            rate: float, total: Tensor, constants: List[Tensor]) -> None:
    for number in range(rows.size(0)):
        key, own_rows = keys[number], rows[number].flatten()
        batch = features.index_select(0, own_rows).unflatten(0, rows.shape[1:])
        wanted = labels.index_select(0, own_rows).unflatten(0, rows.shape[1:])
        found = step({given})
        torch._foreach_add_(own, found[1:], alpha=-rate)
        total.add_(found[0] * rows.size(-1))
"""


def compiled(module: fx.GraphModule, *, descends: bool, native: Callable[[], NativeSteps] | None = None) -> Program:
    """Return a graph of torch's own operations as a TorchScript function of its inputs, and of many steps by it."""
    for node in list(module.graph.nodes):
        if node.target in _SAME:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    names, lines = [], []
    constants: list[tuple[str, Tensor]] = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            names.append(node.name)
        elif node.op == "get_attr":
            constants.append((node.name, getattr(module, node.target)))
        elif node.op == "output":
            lines.append(f"return {_written(list(node.args[0]))}")
        elif node.target is operator.getitem:
            lines.append(f"{node.name} = {_written(node.args[0])}[{node.args[1]}]")
        else:
            given = [_written(value) for value in node.args]
            given += [f"{name}={_written(value)}" for name, value in node.kwargs.items()]
            name = node.target._schema.name.replace("::", ".")
            lines.append(f"{node.name} = torch.ops.{name}({', '.join(given)})")
    inputs = ", ".join(f"{name}: Tensor" for name in (*names, *(name for name, _ in constants)))
    source = "\n    ".join([f"def step({inputs}) -> List[Tensor]:", *lines]) + "\n"
    if descends:
        results: Any = module.graph.output_node().args[0]
        own = len(results) - 1  # a gradient for each parameter, behind the losses
        counts = {"own": own, "beside": len(names) - own - 3}
        held = [f"{name}[{number}]" for name, count in counts.items() for number in range(count)]
        fixed = [f"constants[{number}]" for number in range(len(constants))]
        source += _DESCEND.format(given=", ".join([*held, "batch", "wanted", "key", *fixed]))
    return Program(torch.jit.CompilationUnit(source), [value for _, value in constants], native)


def _written(value: Any) -> str:
    """Return an argument as TorchScript writes it."""
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_written(part) for part in value)}]"
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    return repr(value)
