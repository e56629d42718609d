from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tacit.errors import ConfigError
from tacit.tasks import models

OWN = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)

def sized(shape, classes):
    return nn.Linear(shape[0], classes)

class Classes(nn.Linear):
    def __init__(self, classes, width=7):
        super().__init__(width, classes)

def number():
    return 3

constant = 5

def depth(depth):
    return nn.Linear(depth, depth)

class Raises(nn.Module):
    def __init__(self, classes):
        raise RuntimeError("what\\nand where")

class Hasty(nn.Module):
    def __init__(self):
        self.body = nn.Linear(4, 2)

def late():
    import no_such_package.part

def ours(shape):
    from tacit.tasks import models
    return models.cnn(shape, 10)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a user's module into the working folder, which is not on the path, and return its name."""
    name = f"own_models_of_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    return name


def _build(name: str, shape: tuple[int, ...] = (1, 28, 28), classes: int = 10, seed: int = 0) -> nn.Module:
    return models.build(name, shape=shape, classes=classes, seed=seed)


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_cnn_is_the_labs_layer_by_layer() -> None:
    module = _build("cnn")
    assert _count(module) == 21_840
    assert [type(layer) for layer in module.children()] == [
        nn.Conv2d, nn.MaxPool2d, nn.ReLU, nn.Conv2d, nn.Dropout2d, nn.MaxPool2d, nn.ReLU, nn.Flatten, nn.Linear,
        nn.ReLU, nn.Dropout, nn.Linear,
    ]  # fmt: skip
    shapes = [tuple(p.shape) for p in module.parameters()]
    assert shapes == [(10, 1, 5, 5), (10,), (20, 10, 5, 5), (20,), (50, 320), (50,), (10, 50), (10,)]


def test_the_model_for_dp_sgd_has_the_published_number_of_parameters() -> None:
    assert _count(_build("tempered-cnn")) == 26_010
    assert _build("tempered-cnn", (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert _build("tempered-cnn", (1, 17, 20))(torch.zeros(2, 1, 17, 20)).shape == (2, 10)


def test_lenet_has_the_published_number_of_parameters() -> None:
    assert _count(_build("lenet", (3, 32, 32), 62)) == 66_404


@pytest.mark.parametrize("name", ["cnn", "lenet", "mlp", "logistic"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 17, 21), (1, 16, 16)])
def test_every_model_fits_images_of_any_size(name: str, shape: tuple[int, ...]) -> None:
    assert _build(name, shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", ["mlp", "logistic"])
def test_tables_have_models_too(name: str) -> None:
    assert _build(name, (13,), 2)(torch.zeros(5, 13)).shape == (5, 2)


@pytest.mark.parametrize("name", ["cnn", "lenet"])
@pytest.mark.parametrize("shape", [(13,), (1, 8, 8), (28, 28), (1, 28, 15)])
def test_what_is_no_image_gets_an_error_that_says_what_to_use(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"needs images .* Use model.name=mlp"):
        _build(name, shape)


def test_a_model_that_no_memory_holds_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"Can't build model 'mlp' for .*Is there memory"):
        _build("mlp", (10**13,))


def test_first_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = _build("cnn", seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    second, third = _build("cnn", seed=5), _build("cnn", seed=6)
    for one, other, different in zip(first.parameters(), second.parameters(), third.parameters(), strict=True):
        assert torch.equal(one, other)
        if one.dim() > 1:
            assert not torch.equal(one, different)
        else:
            assert not one.any()  # biases start at zero


def test_a_users_own_class_is_found_in_the_working_folder(own: str) -> None:
    assert type(_build(f"{own}:Net")).__name__ == "Net"
    sized = _build(f"{own}:sized", (6,), 4)
    assert isinstance(sized, nn.Linear)
    assert (sized.in_features, sized.out_features) == (6, 4)
    part = _build(f"{own}:Classes", (6,), 4)
    assert isinstance(part, nn.Linear)
    assert (part.in_features, part.out_features) == (7, 4)


def test_a_module_of_the_library_works(own: str) -> None:
    assert isinstance(_build("torch.nn:Identity"), nn.Identity)


def test_a_users_file_that_is_no_python_is_a_sentence(own: str) -> None:
    Path(f"{own}_broken.py").write_text("class Net(")
    with pytest.raises(ConfigError, match=rf"Can't load model '{own}_broken:Net'"):
        _build(f"{own}_broken:Net")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('at import')", r"RuntimeError: at import\."),
        ("Net = undefined", "NameError: name 'undefined' is not defined"),
        ("raise KeyError", r"KeyError\. Mend it there"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Net(", "SyntaxError: "),
        ("from torch import no_such_thing", "ImportError: cannot import name 'no_such_thing'"),
    ],
)
def test_what_a_users_module_raises_is_a_sentence(own: str, code: str, words: str) -> None:
    Path(f"{own}_broken.py").write_text(code)
    with pytest.raises(ConfigError, match=rf"Can't load model '{own}_broken:Net': module {own}_broken raised {words}"):
        _build(f"{own}_broken:Net")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Raises", r"with \['classes'\]: module {own} raised RuntimeError: what\. Mend"),  # the first of its lines
        ("Hasty", "with no arguments: module {own} raised AttributeError: cannot assign module before"),
        ("late", r"module {own} needs no_such_package, which is not installed\. Install what has it"),
    ],
)
def test_what_a_users_class_raises_is_a_sentence(own: str, name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"Can't build model '{own}:{name}' .*{words.format(own=own)}"):
        _build(f"{own}:{name}")


def test_a_package_that_a_users_module_needs_is_said_to_be_its_own(own: str) -> None:
    Path(f"{own}_needs.py").write_text("import no_such_package")
    with pytest.raises(ConfigError, match=f"module {own}_needs needs no_such_package, which is not installed"):
        _build(f"{own}_needs:Net")


def test_an_error_of_tacits_own_stays_as_it_is(own: str) -> None:
    with pytest.raises(ConfigError, match=r"^Model 'cnn' needs images"):
        _build(f"{own}:ours", (6,))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "ccn",
            r"Unknown model 'ccn'. Did you mean 'cnn'\? Known: cnn, tanh-cnn, tempered-cnn, lenet, convnet2, mlp, ",
        ),
        ("resnet152", r"Unknown model 'resnet152'. Known:"),
        ("no_such_package.models:Net", "No module named 'no_such_package'"),
        ("{own}:Nett", "no attribute 'Nett'"),
        ("{own}:number", "torch.nn.Module, got int"),
        (":Net", "'' is no module's name"),
        (".own:Net", "'.own' is no module's name"),
        ("{own}:constant", "a class or a function that gives a module, got 5"),
        ("{own}:depth", "with no arguments: .*missing 1 required positional argument: 'depth'.*default"),
    ],
)
def test_what_is_no_model_is_explained(own: str, name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _build(name.format(own=own))
