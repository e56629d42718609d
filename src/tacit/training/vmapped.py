"""K clients by :func:`torch.func.vmap`: the general form for models that have no program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from tacit.training.batchable import Explicit, places_in
from tacit.training.dropout import KeyedDropout
from tacit.training.made import Frozen
from tacit.training.native.attention import Natively
from tacit.training.parameters import Parameters


class VmappedNetwork:
    """Runs any module without data-dependent control flow for K clients.

    ``randomness="error"``: a module that draws its own random numbers would draw others here than in a loop over
    clients, so it is refused and trains in the loop. What can't be mapped, as attention's fast kernels, is written out
    (:class:`~tacit.training.batchable.Explicit`); after the first pass only where the module has any. One client alone
    needs no map, and has the module's own kernels, or ``natively`` ours
    (:class:`~tacit.training.native.attention.Natively`), those for linear layers where ``layers`` says so.

    Attributes:
        frozen: what of the module has to stay as it is.
    """

    name = "vmap"
    client_axis = 0

    def __init__(self, module: nn.Module, layout: Parameters, *, natively: bool = False, layers: bool = True) -> None:
        self.module = module.train()
        self.frozen = Frozen(module, layout.tensors(module))
        self._natively, self._layers = natively, layers
        self._places = places_in(module, [slot.name for slot in layout.trained])
        self._keys = [f"{name}.key" for name, m in module.named_modules() if isinstance(m, KeyedDropout)]
        self._explicit: bool | None = None  # nobody knows before the first pass

    def arranged(self, parameter: Tensor) -> Tensor:
        """Return a stacked parameter in the order of memory in which the network computes with it."""
        return parameter

    def outputs(self, parameters: Sequence[Tensor], features: Tensor, keys: Tensor | None) -> Tensor:
        """Return the outputs, ``(K, batch, ...)``."""
        if keys is None:
            raise ValueError("This form only trains; evaluate with the model itself.")

        def one(own: list[Tensor], key: Tensor, batch: Tensor) -> Tensor:
            state = {name: own[number] for name, number in self._places} | dict.fromkeys(self._keys, key)
            result: Tensor = functional_call(self.module, state, (batch,), tie_weights=False)
            return result

        if len(features) == 1:
            with Natively(layers=self._layers) if self._natively else nullcontext():
                return one([own.squeeze(0) for own in parameters], keys[0], features[0])[None]
        mapped = vmap(one, randomness="error")
        if self._explicit is False:
            plain: Tensor = mapped(list(parameters), keys, features)
            return plain
        with Explicit() as mode:
            explicit: Tensor = mapped(list(parameters), keys, features)
        self._explicit = mode.met
        return explicit


class Unhooked(TorchFunctionMode):
    """While it is on, nobody may listen to the gradient of a tensor, or ask if it has one.

    Under a map nobody would call him, and tensors say no.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        asked = getattr(func, "__self__", None) in (Tensor.requires_grad, Tensor.grad_fn)
        if asked or getattr(func, "__name__", "") == "register_hook":
            raise ValueError("it looks at gradients in its forward pass")
        return func(*args, **(kwargs or {}))
