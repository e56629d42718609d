from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from sklearn import datasets

from tacit.errors import DataError
from tacit.tasks import embedded, tumours
from tacit.tasks.tabular import digits_scale


def test_the_tables_are_those_that_scikit_learn_reads() -> None:
    for found, known in (
        (embedded.table("digits.csv.gz"), datasets.load_digits(return_X_y=True)),
        (tumours.load_table(), datasets.load_breast_cancer(return_X_y=True)),
    ):
        assert [np.array_equal(*pair) for pair in zip(found, known, strict=True)] == [True, True]
        assert [part.dtype for part in found] == [np.float64, np.int64]


def test_what_all_share_nobody_writes_to() -> None:
    features, labels = embedded.table("digits.csv.gz")
    for part in (features, labels, *tumours.load_table()):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 0
    for part in digits_scale():
        part[0] = 0  # one's own


def test_the_library_is_not_imported() -> None:
    code = "import sys; from tacit.tasks.tabular import load_digits; load_digits(); assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"datasets/data/none\.csv, which comes with scikit-learn: No such file"):
        embedded.table("none.csv")
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=r"none\.csv comes with scikit-learn, which is not installed"):
        embedded.table("none.csv")
