"""Small data sets: two that scikit-learn carries, and heart disease in four hospitals.

Their test part is every fifth row of each stratum (class, or hospital and class) in the order of the file.
That is 80/20, stratified, and the same on every machine and with every version of any library, since nothing
is drawn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError
from tacit.tasks import embedded, tumours
from tacit.tasks.data import DataSet, Examples
from tacit.tasks.files import DataFile
from tacit.tasks.remote import Mirror
from tacit.tasks.sources import FileSet, obtain
from tacit.tasks.tables import every_fifth

DIGITS_LICENCE = "CC BY 4.0 (UCI, E. Alpaydin and C. Kaynak)"
BREAST_CANCER_LICENCE = "CC BY 4.0 (UCI, W. Wolberg et al.)"
HEART_LICENCE = "CC BY 4.0 (UCI, A. Janosi et al.)"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")

# What a value is centred on and divided by, feature by feature: round numbers from the clinic and the bounds
# in the data's documentation, not statistics of these patients, so that no hospital gives anything away to
# prepare its data.
_HEART_SCALES = (
    ("age", 55, 10),
    ("sex", 0.5, 0.5),
    ("chest pain type", 2.5, 1),
    ("resting blood pressure", 130, 20),
    ("cholesterol", 240, 50),
    ("fasting blood sugar > 120 mg/dl", 0.5, 0.5),
    ("resting electrocardiogram", 1, 1),
    ("maximum heart rate", 140, 25),
    ("angina under exercise", 0.5, 0.5),
    ("ST depression", 1, 1),
    ("slope of the ST segment", 2, 1),
    ("vessels coloured by fluoroscopy", 1.5, 1),
    ("thallium test", 5, 2),
)
_PRESSURE, _CHOLESTEROL = 3, 4
_DIGITS = "digits.csv.gz"

HEART_DISEASE = FileSet(
    name="heart-disease",
    title="UCI heart disease",
    files=tuple(
        DataFile(
            name=f"processed.{hospital}.data",
            size=size,
            sha256=sha256,
            content_size=size,
            content_sha256=sha256,
        )
        for hospital, size, sha256 in (
            ("cleveland", 18_461, "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8"),
            ("hungarian", 10_263, "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796"),
            ("switzerland", 4_109, "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314"),
            ("va", 6_737, "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f"),
        )
    ),
    folders=("heart-disease", "heart_disease", "."),
    remotes=(Mirror(url="https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease"),),
)


def load_digits() -> DataSet:
    """Load scikit-learn's digits: 1,797 images of 8x8 pixels in 0..16, given as tables of 64 features.

    Standardised with the training part's mean and deviation. Those are statistics of the clients' rows which
    no privacy accounting here covers; the set is public and meant for trying things out.
    """
    features, labels = embedded.table(_DIGITS)
    held_out = every_fifth(labels)
    mean, deviation = _statistics(features, held_out)
    scaled = ((features - mean) / deviation).astype(np.float32)
    return DataSet(
        name="digits",
        title="Digits (8x8)",
        classes=10,
        train=Examples(features=scaled[~held_out], labels=labels[~held_out]),
        test=Examples(features=scaled[held_out], labels=labels[held_out]),
        origin="scikit-learn",
        licence=DIGITS_LICENCE,
    )


def digits_scale() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what each pixel of :func:`load_digits`, from 0 to 16, is centred on and divided by."""
    features, labels = embedded.table(_DIGITS)
    return _statistics(features, every_fifth(labels))


def load_breast_cancer() -> DataSet:
    """Load scikit-learn's breast cancer data: 569 tumours, 30 features, malignant (0) or benign (1).

    Scaled by public bounds (:mod:`tacit.tasks.tumours`), so that preparing the data costs no privacy.
    """
    features, labels = tumours.load_table()
    held_out = every_fifth(labels)
    scaled = tumours.scaled(features).astype(np.float32)
    return DataSet(
        name="breast-cancer",
        title="Breast cancer (Wisconsin)",
        classes=2,
        train=Examples(features=scaled[~held_out], labels=labels[~held_out]),
        test=Examples(features=scaled[held_out], labels=labels[held_out]),
        origin="scikit-learn",
        licence=BREAST_CANCER_LICENCE,
    )


def load_heart_disease(*, folder: Path | None = None, download: bool = True) -> DataSet:
    """Load the heart disease of 920 patients in four hospitals, each a natural holder (Detrano et al. 1989).

    13 features as in the original files; the label is 0 where no vessel is narrowed (original 0) and 1
    otherwise (1 to 4). Each feature is centred and divided by a fixed public constant. A missing value ('?',
    and 0 for blood pressure or cholesterol, which no living patient has) becomes that centre, so 0 once
    standardised.
    """
    obtained = obtain(HEART_DISEASE, folder=folder, download=download)
    tables = [_heart_table(obtained.contents[file.name], file=file.name) for file in HEART_DISEASE.files]
    table = np.concatenate(tables)
    hospitals = np.repeat(np.arange(len(tables), dtype=np.int64), [len(part) for part in tables])
    centres, scales = np.array([scale[1:] for scale in _HEART_SCALES], dtype=np.float64).T
    values = table[:, :-1]
    for column in (_PRESSURE, _CHOLESTEROL):
        values[values[:, column] == 0, column] = np.nan
    features = np.nan_to_num((values - centres) / scales, nan=0.0).astype(np.float32)
    labels = (table[:, -1] > 0).astype(np.int64)
    held_out = every_fifth(hospitals * 2 + labels)
    return DataSet(
        name="heart-disease",
        title="Heart disease (four hospitals)",
        classes=2,
        train=Examples(features=features[~held_out], labels=labels[~held_out]),
        test=Examples(features=features[held_out], labels=labels[held_out]),
        groups=hospitals[~held_out],
        group_names=HOSPITALS,
        origin=obtained.origin,
        licence=HEART_LICENCE,
    )


def _heart_table(content: bytes, *, file: str) -> NDArray[np.float64]:
    try:
        rows = [
            [np.nan if value == "?" else float(value) for value in line.split(",")]
            for line in content.decode("ascii").splitlines()
        ]
        table = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise DataError(f"{file} is no table of numbers ({error}). Delete it and get it again.") from error
    if table.ndim != 2 or table.shape[1] != len(_HEART_SCALES) + 1:
        raise DataError(f"Expected {len(_HEART_SCALES) + 1} columns in {file}, got shape {table.shape}.")
    return table


def _statistics(
    features: NDArray[np.float64], held_out: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mean, deviation = features[~held_out].mean(axis=0), features[~held_out].std(axis=0)
    # A pixel that is the same everywhere carries nothing: it becomes 0 rather than a division by zero.
    return mean, np.where(deviation > 0, deviation, 1.0)
