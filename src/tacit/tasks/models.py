"""The models by name, and the user's own as ``package.module:Class``."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tacit.errors import ConfigError, TacitError

Shape = Sequence[int]


def cnn(shape: Shape, classes: int) -> nn.Module:
    """Return the CNN of the MNIST lab: 21,840 parameters on 28 x 28 images of ten classes.

    Biases start at zero, which makes the first rounds less a matter of luck.
    """
    _need_images("cnn", shape)
    channels, height, width = shape
    side = [((length - 4) // 2 - 4) // 2 for length in (height, width)]
    model = nn.Sequential(
        nn.Conv2d(channels, 10, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(10, 20, 5),
        nn.Dropout2d(),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20 * side[0] * side[1], 50),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(50, classes),
    )
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def tanh_cnn(shape: Shape, classes: int) -> nn.Module:
    """Return a small CNN for training under noise: 7,706 parameters on 28 x 28 images of ten classes.

    Noise grows with the square root of the number of parameters, and bounded activations keep updates short
    (Papernot et al. 2021).
    """
    _need_images("tanh-cnn", shape)
    channels, height, width = shape
    side = [((length - 4) // 2 - 4) // 2 for length in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side[0] * side[1], 16),
        nn.Tanh(),
        nn.Linear(16, classes),
    )


def tempered_cnn(shape: Shape, classes: int) -> nn.Module:
    """Return the CNN of tempered sigmoids (Papernot et al. 2021): 26,010 parameters on 28 x 28 images of ten classes.

    The usual model for DP-SGD on MNIST: wide first kernels with stride, bounded activations, pooling that overlaps.
    """
    _need_images("tempered-cnn", shape)
    channels, height, width = shape
    side = [((length // 2 - 1) - 4) // 2 for length in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * side[0] * side[1], 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    )


def lenet(shape: Shape, classes: int) -> nn.Module:
    """Return LeNet-5 with rectifiers and max-pooling (LeCun et al. 1998), its convolutions without bias.

    Images under 32 x 32 are padded by 2. On 3 x 32 x 32 images of 62 classes it has MindSpore Federated's 66,404
    parameters.
    """
    _need_images("lenet", shape)
    channels, height, width = shape
    padding = 2 if min(height, width) < 32 else 0
    side = [((length + 2 * padding - 4) // 2 - 4) // 2 for length in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=padding, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * side[0] * side[1], 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def convnet2(shape: Shape, classes: int) -> nn.Module:
    """Return FederatedScope's ConvNet2 with 2,048 hidden units, but for its batch norms: 6.6 million parameters.

    Batch norm tells of a client's data what no noise on weights hides, and is refused where privacy is claimed.
    """
    _need_images("convnet2", shape)
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 2048),
        nn.ReLU(),
        nn.Linear(2048, classes),
    )


def mlp(shape: Shape, classes: int) -> nn.Module:
    """Return a perceptron with two hidden layers of 128 and 64."""
    features = math.prod(shape)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(features, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def logistic(shape: Shape, classes: int) -> nn.Module:
    """Return multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def scatter_linear(shape: Shape, classes: int) -> nn.Module:
    """Return logistic regression that starts at zero, for scattering features: 39,700 parameters on 81 x 7 x 7.

    Under noise a convex model on good features learns more than a deep one on pixels (Tramèr & Boneh 2021), and from
    zero every clipped step goes the way of the data.
    """
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def scatter_cnn(shape: Shape, classes: int) -> nn.Module:
    """Return a small CNN for scattering features: 25,898 parameters on 81 x 7 x 7 of ten classes.

    A convolution on the features can learn a little more than a linear model where epsilon is large (Tramèr & Boneh
    2021).
    """
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise ConfigError(
            "Model 'scatter-cnn' needs scattering features (channels, height, width) of at least 4 x 4, but an example "
            f"has shape {tuple(shape)}. Set data.features=scatter, or use model.name=cnn."
        )
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Linear(32 * ((height - 1) // 2) * ((width - 1) // 2), 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    )


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "cnn": cnn,
    "tanh-cnn": tanh_cnn,
    "tempered-cnn": tempered_cnn,
    "lenet": lenet,
    "convnet2": convnet2,
    "mlp": mlp,
    "logistic": logistic,
    "scatter-linear": scatter_linear,
    "scatter-cnn": scatter_cnn,
}


def build(name: str, *, shape: Shape, classes: int, seed: int) -> nn.Module:
    """Build a model with first weights that depend on ``seed`` alone.

    Args:
        name: one of :data:`MODELS`, or ``package.module:Class``: anything that can be called and returns a module.
            It is called with ``shape`` and ``classes`` if it takes arguments of these names, with none otherwise.
        shape: the shape of one example.
        classes: how many classes there are.
        seed: for the first weights; torch's global generator is left as it was.
    """
    make = MODELS.get(name) or _users_own(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = make(shape, classes)
        except (MemoryError, RuntimeError) as error:  # torch's, of what it has no room for
            raise ConfigError(
                f"Can't build model {name!r} for examples of shape {tuple(shape)} and {classes} classes: "
                f"{_first_line(error)}. Is there memory for it?"
            ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(f"Expected {name!r} to give a torch.nn.Module, got {type(module).__name__}.")
    return module


def _users_own(name: str) -> Callable[[Shape, int], nn.Module]:
    path, colon, attribute = name.partition(":")
    if not colon:
        close = difflib.get_close_matches(name, MODELS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"Unknown model {name!r}.{hint} Known: {', '.join(MODELS)}; your own as package.module:Class."
        )
    made = _load(name, path, attribute)
    if not callable(made):
        raise ConfigError(f"Expected {name!r} to be a class or a function that gives a module, got {made!r}.")

    def make(shape: Shape, classes: int) -> nn.Module:
        offered = {"shape": tuple(shape), "classes": classes}
        taken = {key: value for key, value in offered.items() if key in _parameters(made)}
        cannot = f"Can't build model {name!r} with {sorted(taken) or 'no arguments'}"
        try:
            module: nn.Module = made(**taken)
        except TacitError:
            raise
        except TypeError as error:
            raise ConfigError(
                f"{cannot}: {error}. "
                "Tacit passes shape and classes where they are taken; give other arguments a default."
            ) from error
        except (Exception, SystemExit) as error:  # somebody else's code may raise anything
            raise ConfigError(f"{cannot}: {_raised(path, error)}") from error
        return module

    return make


def _load(name: str, path: str, attribute: str) -> Any:
    """Return what a module of somebody else's has by a name."""
    here = str(Path.cwd())
    if here not in sys.path:  # a script's folder is on the path, a console command's is not
        sys.path.insert(0, here)
    cannot, expected = f"Can't load model {name!r}", f"Expected package.module:Class, importable from {here}."
    if not path or path.startswith("."):
        raise ConfigError(f"{cannot}: {path!r} is no module's name. {expected}")
    try:
        module = importlib.import_module(path)
    except TacitError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}."):
            raise ConfigError(f"{cannot}: {error}. {expected}") from error
        raise ConfigError(f"{cannot}: {_raised(path, error)}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise ConfigError(f"{cannot}: {error}. {expected}") from error


def _raised(path: str, error: BaseException) -> str:
    """Return what a module of somebody else's raised, and what to do about it."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"module {path} needs {error.name}, which is not installed. Install what has it, beside Tacit."
    said = _first_line(error)
    return f"module {path} raised {type(error).__name__}{said and f': {said}'}. Mend it there; it is not Tacit's."


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "").rstrip(".")


def _parameters(made: Callable[..., object]) -> set[str]:
    try:
        return set(inspect.signature(made).parameters)
    except ValueError:  # something of Python's own, which does not say
        return set()


def _need_images(name: str, shape: Shape) -> None:
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise ConfigError(
            f"Model {name!r} needs images (channels, height, width) of at least 16 x 16, "
            f"but an example has shape {tuple(shape)}. Use model.name=mlp or logistic."
        )
