"""Metrics against scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics as theirs

from tacit.training.metrics import METRICS, computed, metrics_named

GENERATOR = np.random.RandomState(2)


def _case(classes: int) -> tuple[Any, Any]:
    outputs = np.round(GENERATOR.normal(size=(200, classes)), 1)  # with ties
    return outputs, (outputs + GENERATOR.normal(size=outputs.shape)).argmax(1)


@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_are_scikit_learns(classes: int) -> None:
    outputs, labels = _case(classes)
    named, average = outputs.argmax(1), "binary" if classes == 2 else "macro"
    found = computed(metrics_named(METRICS), outputs, labels)
    assert found["accuracy"] == pytest.approx(theirs.accuracy_score(labels, named))
    assert found["balanced-accuracy"] == pytest.approx(theirs.balanced_accuracy_score(labels, named))
    for name, score in (
        ("f1", theirs.f1_score),
        ("precision", theirs.precision_score),
        ("recall", theirs.recall_score),
    ):
        assert found[name] == pytest.approx(score(labels, named, average=average))
    areas = [theirs.roc_auc_score(labels == place, outputs[:, place]) for place in range(classes)]
    expected = theirs.roc_auc_score(labels, outputs[:, 1] - outputs[:, 0]) if classes == 2 else np.mean(areas)
    assert found["auc"] == pytest.approx(expected)
    recalls = theirs.recall_score(labels, named, average=None)
    assert [found[f"accuracy of {place}"] for place in range(classes)] == pytest.approx(list(recalls))


def test_one_logit_is_the_second_of_two_classes() -> None:
    outputs, labels = _case(2)
    one = outputs[:, 1:] - outputs[:, :1]
    assert computed(metrics_named(["auc", "f1"]), one, labels) == pytest.approx(
        computed(metrics_named(["auc", "f1"]), outputs, labels)
    )


def test_what_has_no_value_is_left_out_and_classes_have_their_names() -> None:
    outputs, labels = np.eye(2), np.zeros(2, int)
    assert computed(metrics_named(["auc"]), outputs, labels) == {}
    assert computed(metrics_named("per-class"), outputs, labels, ["ill", "well"]) == {"accuracy of ill": 0.5}
