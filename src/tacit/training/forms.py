"""Chooses the fastest form of training that a model allows.

=========  ==========================================================================================
form       for
=========  ==========================================================================================
lanes      convolutions, linear layers, pooling and pointwise layers on a CPU with the native kernels
images     the same with wide convolutions of 3 x 3 on a CPU with the native kernels: one client after another
perceptron linear layers in a row on a CPU with the native kernels: one client after another, all steps in a few calls
grouped    models whose every layer has a rule (:mod:`tacit.training.program`), on any device
vmap       other models without control flow on data or random numbers of their own
loop       everything else, runs with hooks, and on CPUs models so large that one client fills a core
=========  ==========================================================================================

On a CPU, steps of tiny models become straight programs (:mod:`tacit.training.straight`) after a few rounds, in the loop
too. So do those of models with attention, whose clients train one after another on each core, by native attention
(:mod:`tacit.training.native.attention`), and those of recurrent networks, by native calls alone
(:mod:`tacit.training.native.steps`); those that look at one place of a text compute no others behind their last
attention, from the first step on (:mod:`tacit.training.narrow`). On a GPU that one client nearly keeps busy, a few
train side by side, each by operations of its own, as branches of a captured graph.

All forms give the same result for a client (up to the order of floating-point sums), whoever trains beside it.
"""

from __future__ import annotations

import copy
import functools
from typing import Literal

import torch
from torch import nn

from tacit.errors import ConfigError
from tacit.limits import cores, memory
from tacit.training import habits
from tacit.training.batchable import Attention, batchable, names_in
from tacit.training.batches import Holdings
from tacit.training.captured import ASIDE, CapturedTrainer
from tacit.training.cohort import ChunkTrainer, CohortTrainer, as_workers, chunk_size, usual_chunk
from tacit.training.cost import MAPPED, Cost, cost_of
from tacit.training.dropout import use_keys, watched_generators
from tacit.training.grouped import GroupedNetwork
from tacit.training.hooks import Hooks
from tacit.training.lanes.network import LANES, LaneTrainer, prefers_clients
from tacit.training.lanes.network import check as check_lanes
from tacit.training.loop import LoopTrainer
from tacit.training.native import available, images, perceptron
from tacit.training.native.descent import Descent
from tacit.training.native.recurrent import PART
from tacit.training.parameters import (
    CHANGES,
    Parameters,
    hooked_backwards,
    in_one_piece,
)
from tacit.training.private.probe import calm, in_full_precision
from tacit.training.program import Convolution, NoProgram, Program, check_alike, drops_anew, graph_of, trace
from tacit.training.recurrence import Recurrence
from tacit.training.settings import LocalTraining, Loss, cross_entropy
from tacit.training.stacked import Network, StackedTrainer, Straight
from tacit.training.straight import StraightStep
from tacit.training.vmapped import VmappedNetwork

Form = Literal["auto", "lanes", "images", "perceptron", "grouped", "vmap", "loop"]

_SHARE, _BESIDE, _COPIES = 0.5, 2.0, 6  # of free memory; activations and their gradients; weights, gradients, momenta
_HELD = 8  # copies of the model that a worker holds: its own, gradient, update, what is sent, and on the way to that
_LARGE = 1 << 22  # parameters; sixteen copies of more fill no cache, and a good part of a small memory
_FEW = "there are too few clients per core to gain from training them at once"
_BUSY = "one client's operations keep the GPU busy: many clients at once would gain nothing"
_ALONE = "one client nearly keeps the GPU busy: a few train side by side, each by operations of its own"
_HEAVY = "the model is so large that copies for many clients at once would cost more than they gain"
_NATIVE = "one client's operations keep a core busy: clients train one after another, by native convolutions"
_ATTENDS = "one client's operations keep a core busy: clients train one after another, by native attention"
_RECURS = "one client's recurrent layers keep a core busy: clients train one after another, by native calls alone"
_USES = 128  # steps of one client before a program is made of them: it takes as long as some hundred, to save a fifth
_LOCKED = 6  # workers; each call of a native linear layer holds Python's lock for a tenth of the time that it takes
_MOSTLY = 0.5  # of the arithmetic in convolutions is to be done by the native ones
_GAIN = 2  # cores of PyTorch's that one with the native ones is worth; PyTorch spreads a lone client over all
# The same where they save no arithmetic, of models of which every layer is native and of others: a MobileNet of three
# clients on two cores had 1.35 times a loop's speed, and 0.97 with SiLU, which is PyTorch's, in the place of ReLU6.
_WHOLE, _PARTS = 1.5, 1.25
_SPILLS = "what many clients hold at once would not fit a CPU's cache, and one client's does"
_IDLE = "there are too few clients to keep all cores busy: the last ones train on all of them"
_TOGETHER = 8  # clients of a straight program, before a second core has one of its own
_LAID_OUT = 8  # clients of tiny models whose batches are laid out together
_ODD = 2  # clients per core; with more of them no core is idle for long
_HANDFUL = 1e-3  # seconds of a client, below which laying out its batches alone would tell
_TRIFLE, _CROWD = 1.5e-5, 16  # the same, below which so many per core had better share calls
_FULL = "one client's operations keep a core busy: many clients at once would gain nothing"


@as_workers
def cohort_trainer(
    *,
    module: nn.Module,
    holdings: Holdings,
    settings: LocalTraining,
    loss: Loss,
    form: Form = "auto",
    workers: int | None = None,
    hooks: Hooks | None = None,
) -> CohortTrainer:
    """Return what trains cohorts of a model in the fastest form it allows, or in the one asked for.

    Args:
        module: the model; a copy of it trains.
        holdings: who holds which examples.
        settings: local SGD.
        loss: one loss per example.
        form: the form; ``auto`` takes the fastest.
        workers: how many chunks train at the same time; if None one per core, as far as half of the memory has room
            for their copies of the model, or one on a GPU.
        hooks: extension points; with hooks of one's own clients train in a loop.

    Raises:
        ConfigError: the form that was asked for does not fit the model.
    """
    choice = _Choice(
        module=module,
        holdings=holdings,
        settings=settings,
        loss=loss,
        asked=form,
        hooks=hooks,
        workers=workers or (1 if holdings.features.is_cuda else _side_by_side(module)),
    )
    lanes = LANES if choice.form == "lanes" and prefers_clients(settings.batch_size, LANES) else 0
    return CohortTrainer(
        form=choice.form,
        reason=choice.reason,
        layout=choice.layout,
        trainers=[choice.trainer() for _ in range(choice.workers)],
        holdings=holdings,
        settings=settings,
        lanes=lanes,
        at_once=choice.at_once(),
        at_least=_TOGETHER if choice.straight is not None and choice.at_once() != 1 else 1,
        shared=choice.shared,
        step=choice.step,
        threads=choice.threads,
        between=None if choice.straight is None else choice.straight.make,
    )


def _side_by_side(module: nn.Module) -> int:
    """Return how many clients train side by side on a CPU: one per core, as far as the memory has room for them."""
    room, size = memory(), 4 * sum(parameter.numel() for parameter in module.parameters())
    return cores() if room is None else max(1, min(cores(), int(_SHARE * room / (_HELD * max(size, 1)))))


def _in_layers(module: nn.Module) -> nn.Module:
    """Return a model that is a single layer of torch's as a network of one layer, which has a rule as any other."""
    single = type(module).__module__.startswith("torch.nn") and not any(True for _ in module.children())
    return nn.Sequential(module) if single else module


class _Choice:
    """The form that was chosen, why not a faster one, and a trainer of it for each worker."""

    def __init__(
        self,
        *,
        module: nn.Module,
        holdings: Holdings,
        settings: LocalTraining,
        loss: Loss,
        asked: Form,
        hooks: Hooks | None,
        workers: int,
    ) -> None:
        self._workers = workers
        self._device = holdings.features.device
        self._holdings = holdings
        self._settings = settings
        self._loss = loss
        self._hooks = hooks or Hooks.for_training()
        self._module = copy.deepcopy(module).to(self._device).train()
        self.layout = Parameters.of(self._module)
        self._own_layout = self.layout  # of the module that the loop trains
        self._mapped = _in_layers(batchable(self._module))  # what vmap maps
        self._mapped_layout = self.layout.renamed(names_in(self._mapped, self._module, self.layout.names))
        self._program, self.reason = self._trace()
        self._alone = False  # whether a client fills the GPU by itself
        self.form = self._choose(asked)
        self.straight = self._followed()

    def _followed(self) -> StraightStep | None:
        """Return what follows a tiny model's steps and makes a straight program of them, where that pays."""
        if self.form == "loop":
            return self._followed_alone()
        follow = self._still if self._alone else self._can_be_straight
        if self.form not in ("grouped", "vmap") or not follow:
            return None
        if self._alone:
            return self._begun[0]
        own = self._stacked()
        module = own.network.module if isinstance(own.network, VmappedNetwork) else nn.Identity()
        return StraightStep(own.differentiated, module, loss=self._loss, descends=self._settings.descends)

    @functools.cached_property
    def _begun(self) -> tuple[StraightStep, bool]:
        """Return what follows steps of one client after another, and whether they are native calls from the first."""
        network = self._vmapped(natively=True)
        own = self._stacked_of(network)
        descends = self._settings.descends
        straight = StraightStep(own.differentiated, network.module, loss=self._loss, uses=_USES, descends=descends)
        state, held = own.start(self._own_layout.read(self._module), 1), self._holdings
        places = torch.linspace(0, len(held.labels) - 1, len(self._batch)).long()  # that differ, as far as they do
        features, labels = calm(held.features[places])[None], calm(held.labels[places])[None]
        labels = labels.clamp(min=0) if labels.dtype == torch.int64 else labels  # some leave examples out by that
        given = *state.parameters, features, labels, None, torch.zeros(1, dtype=torch.int64)
        return straight, straight.begin(*given)

    def _followed_alone(self) -> StraightStep | None:
        """Return what follows the steps of one client in the loop, where Python's calls tell."""
        own = self._loop(None)
        cost = self._alone_cost if self._can_be_followed and own.unseen else None
        if cost is None or self._keeps or not cost.calls_tell or len(self._batch) == 1 or own.reaches_past(self._batch):
            return None
        return StraightStep(own.differentiated, own.module, loss=self._loss, descends=self._settings.descends)

    @functools.cached_property
    def _can_be_straight(self) -> bool:
        return self._can_be_followed and self._cost(self._mapped).tiny

    @property
    def _can_be_followed(self) -> bool:
        """Whether a step can be written down, and gains by it; native recurrent layers take nearly all of theirs."""
        return self._still and not any(part.native for part in self._recurs)

    @property
    def _still(self) -> bool:
        """Whether a step on a CPU is the same whenever it is taken."""
        return self._device.type == "cpu" and not self._draws and not self._of_loss.changes

    @property
    def _recurs_natively(self) -> bool:
        """Whether steps of a model with recurrent layers are native calls, one client after another."""
        layers = self._recurs
        asked = bool(layers) and all(part.native for part in layers) and self._settings.descends
        return asked and self._still and self._begun[1]

    @functools.cached_property
    def _attends(self) -> bool:
        """Whether native kernels can compute attention in the model, one client after another."""
        can = self._device.type == "cpu" and not self._draws and available()
        return can and habits.attends(self._mapped, self._batch)

    @property
    def _recurs(self) -> list[Recurrence]:
        """The recurrent layers that stand in for torch's."""
        return [part for part in self._mapped.modules() if isinstance(part, Recurrence)]

    @property
    def workers(self) -> int:
        """How many chunks may train at the same time.

        On a GPU one, whatever is asked for: nobody else may compute while a graph is captured, and a chunk is as large
        as its memory allows. Clients in a loop share torch's only generator where the model draws from it: then there
        is one worker, and so there is where one client's operations are worth all cores, or where they are nothing
        beside Python's calls and no program takes these over.
        """
        if self._device.type == "cuda":
            return 1
        waits = self._pythons and self.straight is None
        if self.form == "loop" and (self._draws or self._wide or waits):
            return 1
        alone = self.form in ("loop", "images", "perceptron") or self._alone
        return min(self._workers, len(self._holdings.rows)) if alone else self._workers

    @property
    def threads(self) -> int | None:
        """How many of torch's threads each worker has, where there is a reason for few."""
        if self.form != "loop" or self._alone_cost is None:
            return None
        return 1 if self._pythons or self._alone_cost.shared(self._workers) == 1.0 else None

    @property
    def shared(self) -> float:
        """How many times as fast as on one core a client trains on all of them."""
        if self.form == "perceptron":
            return self._perceptron.shared(self.workers)
        if self._recurs and len(self._batch) < 2 * PART:  # of a batch that is one part
            return 1.0
        return self._alone_cost.shared(self.workers) if self._one_by_one and self._alone_cost else 1.0

    @property
    def step(self) -> float:
        """How long a step takes that one client takes alone on one core, in seconds."""
        if self.form == "perceptron":
            return self._perceptron.seconds
        return self._alone_cost.seconds if self._one_by_one and self._alone_cost else 0.0

    @property
    def _one_by_one(self) -> bool:
        """Whether one client trains after another, by PyTorch's own operations for the most part."""
        return self.form == "loop" or (self._alone and self._device.type == "cpu")

    @functools.cached_property
    def _alone_cost(self) -> Cost | None:
        """What one client's step costs on a CPU, where nothing but Tacit's own code and the model run in it."""
        counts = self._device.type == "cpu" and self._plain and not self._draws
        return self._cost(self._module) if counts else None

    @property
    def _wide(self) -> bool:
        """Whether one client's operations are worth all cores."""
        return self._alone_cost is not None and self._alone_cost.fills_cores(self._workers)

    @property
    def _pythons(self) -> bool:
        """Whether one client's operations are nothing beside Python's calls; a recurrent layer's many are one call."""
        return self._alone_cost is not None and self._alone_cost.waits_for_python and not self._recurs

    def at_once(self) -> int | None:
        """Return how many clients may train as one program, where a form or the memory sets a limit.

        A loop trains one after another, and yet lays out the batches of several at once where that takes its time.
        """
        if self.form == "loop" and self._pythons:
            return _LAID_OUT
        if self.form in ("loop", "images") or (self._alone and self._device.type == "cpu"):
            return 1
        if self.form == "perceptron" and self._longest * self._perceptron.seconds > _HANDFUL:
            return 1
        if self._alone:
            return min(ASIDE, self._fitting())
        if self._device.type == "cpu":
            return max(1, LANES * _LARGE // max(self.layout.size, 1))
        return self._fitting()

    def _fitting(self) -> int:
        """Return how many clients fit the GPU's memory: by what a step keeps for its backward pass."""
        trainer, clients = self._stacked(), 1 if self._alone else 2
        width = min(self._settings.batch_size, len(self._holdings.labels))
        rows = torch.arange(width, device=self._device).repeat(clients, 1)
        kept: dict[int, int] = {}

        def count(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            state = trainer.start(self._own_layout.read(self._module), clients)
            trainer.network.outputs(state.parameters, self._holdings.features[rows], torch.zeros_like(rows[:, 0]))
        copies = 4 * _COPIES * self.layout.size
        free = torch.cuda.mem_get_info(self._device)[0] + torch.cuda.memory_reserved(self._device)
        return max(1, int(_SHARE * free / (_BESIDE * sum(kept.values()) / clients + copies)))

    def trainer(self) -> ChunkTrainer:
        """Return a trainer for one worker, with a model of its own."""
        layout, settings, loss = self.layout, self._settings, self._loss
        if self.form == "lanes":
            assert self._program is not None
            return LaneTrainer(program=self._program, layout=layout, settings=settings, loss=loss)
        if self.form == "loop":
            return self._loop(self.straight)
        if self.form == "perceptron":
            assert self._program is not None
            return perceptron.PerceptronTrainer(program=self._program, layout=layout, settings=settings)
        stacked = self._stacked(self._native_descent() if self.form == "images" else self.straight)
        captured = self._device.type == "cuda" and settings.is_sgd
        return CapturedTrainer(stacked, settings, apart=self._alone) if captured else stacked

    def _loop(self, straight: StraightStep | None) -> LoopTrainer:
        return LoopTrainer(
            module=in_one_piece(self._module),
            layout=self._own_layout,
            settings=self._settings,
            loss=self._loss,
            hooks=self._hooks,
            draws=self._draws,
            keeps=self._keeps,
            straight=straight,
            innermost=self._bears_innermost,
        )

    @functools.cached_property
    def _bears_innermost(self) -> bool:
        """Whether the loop's model computes the same of images whose channels lie innermost on a CPU, and faster."""
        features = calm(self._holdings.features[:2])
        if self._device.type != "cpu" or not self._plain or self._draws or features.dim() != 4:
            return False
        return habits.bears_innermost(self._module, [features, self._batch])

    def _native_descent(self) -> Descent | None:
        """Return what takes many steps of one client's images in one call, where the loss allows it."""
        assert self._program is not None
        images_in = len(self._program.input_shape) == 3
        return images.descent(self._program) if self._loss is cross_entropy and images_in else None

    def _stacked(self, straight: Straight | None = None) -> StackedTrainer:
        network: Network
        if self.form in ("grouped", "images"):
            assert self._program is not None
            on_gpu = self._device.type == "cuda"
            network = (
                GroupedNetwork(self._program, by_client=on_gpu)
                if self.form == "grouped"
                else images.ImageNetwork(self._program)
            )
        else:
            network = self._vmapped(natively=self._alone and self._device.type == "cpu")
        return self._stacked_of(network, straight)

    def _vmapped(self, *, natively: bool) -> VmappedNetwork:
        layers = self._workers <= _LOCKED
        return VmappedNetwork(copy.deepcopy(self._mapped), self._mapped_layout, natively=natively, layers=layers)

    def _stacked_of(self, network: Network, straight: Straight | None = None) -> StackedTrainer:
        return StackedTrainer(
            network=network,
            layout=self.layout,
            settings=self._settings,
            loss=self._loss,
            straight=straight,
            frozen=network.frozen if isinstance(network, VmappedNetwork) else None,
        )

    @property
    def _plain(self) -> bool:
        """Whether a client's training is nothing but Tacit's own: no hooks and no optimiser of the user's.

        Torch's hooks of a forward pass may be mapped with it; those of a backward pass nothing but the loop calls.
        """
        own = self._hooks.changed or hooked_backwards(self._module.modules())
        return not own and self._settings.factory is None

    def _trace(self) -> tuple[Program | None, str]:
        """Follow the model and return its program, or why there is none; dropout has keys from here on."""
        use_keys(self._module)
        if self._mapped is not self._module:
            use_keys(self._mapped)
        if self._hooks.changed:  # hooks are shown the user's own module, not a traced one
            return None, "hooks see one client at a time"
        if self._settings.factory is not None:
            return None, "an optimiser of your own sees one client at a time"
        if hooked_backwards(self._module.modules()):
            return None, "torch's hooks of a backward pass see one client at a time"
        drops = any(isinstance(m, Recurrence | Attention) and m.drop is not None for m in self._mapped.modules())
        program, reason, traced, pure = None, "", None, True
        try:
            with watched_generators(self._device) as drawn:
                own = copy.deepcopy(self._mapped)  # in which a trace may leave what stands for its values
                followed = graph_of(own)
                pure = not drawn()
            with in_full_precision():
                check_alike(own, followed, calm(self._holdings.features[:2]))
            traced = followed
            found = trace(traced, self._mapped_layout, self._holdings.features[0])
            images_out = bool(found.steps) and len(found.steps[-1].shape) == 3  # with channels of all clients
            program, reason = (None, "its output is an image") if images_out else (found, "")
        except NoProgram as error:
            reason = str(error)
        if traced is not None and (program is not None or (drops_anew(traced) and pure)):
            self._mapped, drops = traced, drops or drops_anew(traced)
        if drops and habits.computes(self._mapped, calm(self._holdings.features[:2])):
            self._module, self._own_layout = self._mapped, self._mapped_layout  # masks are the same in all forms then
        return program, reason

    @functools.cached_property
    def _draws(self) -> bool:
        """Whether a training pass of the loop's module, or the loss, draws random numbers: hooks are anybody's code."""
        anybodys = not self._plain or self._of_loss.draws
        return anybodys or habits.draws(self._module, calm(self._holdings.features[:2]))

    @functools.cached_property
    def _keeps(self) -> bool:
        """Whether a training pass changes what the loop's module holds: hooks are anybody's code."""
        return self._hooks.changed or habits.keeps(self._module, self._batch)

    @functools.cached_property
    def _of_loss(self) -> habits.OfLoss:
        return habits.of_loss(self._loss, self._module, self._holdings.features, self._holdings.labels)

    def _choose(self, asked: Form) -> Form:
        allowed: list[Form] = ["loop"]
        changes = self._of_loss.changes or self._keeps
        if self._plain and (changes or self._of_loss.why_alone):
            self.reason = CHANGES if changes else self._of_loss.why_alone
        elif self._plain:
            allowed = self._with_program()
            if (asked == "vmap" or not allowed) and self._can_vmap():
                allowed.append("vmap")
            allowed.append("loop")
        if asked == "auto":
            return self._fastest(allowed)
        if asked not in allowed:
            raise ConfigError(
                f"train.form={asked} does not fit this model: {self.reason or 'it is not available here'}. "
                f"Use train.form=auto, or one of: {', '.join(allowed)}."
            )
        return asked

    def _fastest(self, allowed: list[Form]) -> Form:
        """Return the first of the forms, or the loop where nothing is gained by training many clients at once."""
        first: Form = next(form for form in allowed if form not in ("images", "perceptron"))
        if first == "lanes" and self._leaves_lanes:
            first = "grouped"
        own = next((form for form in allowed if self._pays_natively(form)), None)
        if own is not None:
            self.reason = _NATIVE if own == "images" else ""
            return own
        enough = _GAIN * len(self._holdings.rows) >= self._workers
        if enough and first == "vmap" and self._attends and not self._cost(self._mapped).light:
            self.reason, self._alone = _ATTENDS, True
        elif first == "vmap" and self._recurs_natively:
            self.reason, self._alone = _RECURS, True
        heavy = self._device.type == "cpu" and self.layout.size > _LARGE and first != "loop"
        if self._alone or (not heavy and (first == "loop" or self._draws)):
            return first
        if heavy:
            self.reason = _HEAVY
            return "loop"
        loop = self._cost(self._module)
        if self._device.type != "cpu":
            return self._fastest_on_gpu(first, loop)
        why = self._why_alone(first, loop)
        if not why:
            return first
        self.reason = why
        if self._recurs and all(part.native for part in self._recurs):  # faster one by one too, and they were tried
            self._module, self._own_layout = self._mapped, self._mapped_layout
        return "loop"

    def _pays_natively(self, form: Form) -> bool:
        """Return whether a form is one of native kernels for one client after another, and faster than others."""
        if form == "images":
            return self._images() >= _MOSTLY and self._images_pay
        many = len(self._holdings.rows) >= _CROWD * self._workers
        trifles = many and self._longest * self._perceptron.seconds < _TRIFLE
        return form == "perceptron" and self._perceptron.pays and not trifles

    def _why_alone(self, first: Form, loop: Cost) -> str:
        """Return why clients train one after another on a CPU, and nothing where many at once are faster."""
        clients = len(self._holdings.rows)
        batch, most = self._settings.batch_size, chunk_size(self._settings.batch_size, "cpu")
        share = -(-clients // self._workers)
        straight = first != "lanes" and self._can_be_straight
        share = usual_chunk(self._holdings.sizes, batch, min(most, max(share, _TOGETHER) if straight else share))
        if straight:
            return "" if self._cost(self._mapped).program_pays(share, self._workers) else _FEW
        if first != "lanes":
            mapped = loop if self._mapped is self._module else self._cost(self._mapped)
            each = 1.0 if first == "grouped" else MAPPED
            if not loop.mapping_pays(each * mapped.operations, share):
                return _FEW if loop.small else _FULL
        if loop.spills(share):
            return _SPILLS
        empty = share == 1 or (prefers_clients(batch, LANES) and share < LANES)
        if first == "lanes" and empty and not self._convolves:
            return _FEW  # a perceptron's products are slower in lanes of which some are empty
        return _IDLE if clients % self._workers and share <= _ODD and not loop.small else ""

    def _fastest_on_gpu(self, first: Form, loop: Cost) -> Form:
        if not loop.fills_a_gpu(products=first == "grouped"):
            return first
        if not self._settings.is_sgd or self._recurs:
            self.reason = _BUSY  # its steps are not captured, or cuDNN has one kernel for what would be many
            return "loop"
        self.reason, self._alone = _ALONE, True
        return first

    def _cost(self, module: nn.Module) -> Cost:
        """Return the cost of one step's forward pass."""
        return cost_of(in_one_piece(module), self._batch)

    @property
    def _batch(self) -> torch.Tensor:
        """Features of a full batch, for questions that go by shapes: any example will do."""
        size = min(self._settings.batch_size, int(self._holdings.sizes.max()))
        example = calm(self._holdings.features[:1])
        return example.expand(size, *example.shape[1:]).clone()  # a model may write to it

    def _with_program(self) -> list[Form]:
        """Return the forms that run the model's program, the faster first."""
        if self._program is None:
            return []
        native: list[Form] = ["images"] if self._images() else ["perceptron"] if self._perceptron.layers else []
        if not self._settings.is_sgd:
            self.reason = f"the fast lanes know SGD, not {self._settings.name}"
        elif self._device.type == "cpu":
            try:
                check_lanes(self._program)
            except NoProgram as error:
                self.reason = str(error)
            else:
                return ["lanes", *native, "grouped"]
        return [*native, "grouped"]

    @property
    def _leaves_lanes(self) -> bool:
        """Whether a straight program for many clients is faster than lanes."""
        idle = not self._convolves or self._cost(self._mapped).leaves_lanes_idle
        return idle and self._can_be_straight

    @property
    def _convolves(self) -> bool:
        """Whether a layer of the model's program is a convolution."""
        return self._program is not None and any(isinstance(s.operation, Convolution) for s in self._program.steps)

    @property
    def _images_pay(self) -> bool:
        """Whether clients train faster by native convolutions, one on each core, than on all cores by PyTorch's."""
        if self._cost(self._module).small:
            return False
        clients, workers = len(self._holdings.rows), self._workers
        if self._images(tiles=True) >= _MOSTLY:
            return _GAIN * clients >= workers
        assert self._program is not None
        shapes = [slot.shape for slot in self._mapped_layout.trained]
        each = _WHOLE if images.layers(self._program, shapes, len(self._batch)) is not None else _PARTS
        return each * clients >= workers * -(-clients // workers)  # the last of an odd number would leave cores idle

    @functools.cached_property
    def _perceptron(self) -> perceptron.Cost:
        """What the native kernels take for a step of one client of a perceptron; without layers, if it is none."""
        data, settings, layers = self._holdings, self._settings, []
        if self._program is not None and self._device.type == "cpu" and perceptron.suits(settings, self._loss):
            layers = perceptron.fitting(self._program, self._mapped_layout, data.features, data.labels)
        return perceptron.Cost(layers=layers if available() else [], count=len(self._batch))

    @property
    def _longest(self) -> int:
        """How many steps the largest client takes."""
        return self._settings.epochs * -(-int(self._holdings.sizes.max()) // self._settings.batch_size)

    def _images(self, *, tiles: bool = False) -> float:
        """Return which share of the convolutions' arithmetic the native kernels for one client's images would do."""
        if self._program is None or self._device.type != "cpu" or not available():
            return 0.0
        return images.share(self._program, [slot.shape for slot in self._mapped_layout.trained], tiles=tiles)

    def _can_vmap(self) -> bool:
        network = self._vmapped(natively=False)
        start, trainer = self._own_layout.read(self._module), self._stacked_of(network)
        size = self._settings.batch_size
        why = habits.why_unmapped(self._mapped, start, network, trainer, self._holdings, size)
        if why and why not in self.reason:
            self.reason = "; ".join(filter(None, (self.reason, why)))
        return not why
