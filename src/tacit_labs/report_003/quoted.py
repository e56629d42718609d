"""What the report says. These values are quoted, never measured here; everything else on its page is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DOCUMENT = "003_80a3edf6a6b18d18.txt"
ROUNDS = 6  # rounds 0 to 5 of its output

# Not in the report: the settings of its author's public code. They are those of 000's too, for the same exercise.
REPOSITORY = "Alpha-Girl/DP2021_labs"
CLIENTS, LOCAL_EPOCHS, BATCH, RATE, MOMENTUM = 5, 3, 64, 0.015, 0.5
KEY_BITS = 1024


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of its table: sigma, C, epsilon, the accuracy after the first round; all of them "converge"."""

    sigma: float
    clip: float
    epsilon: float
    accuracy: float


TABLE = (
    Line(sigma=0.0001, clip=2.0, epsilon=75529.0, accuracy=0.9357),
    Line(sigma=0.1, clip=0.01, epsilon=0.377, accuracy=0.5072),
    Line(sigma=0.1, clip=0.001, epsilon=0.0377, accuracy=0.5115),
    Line(sigma=0.05, clip=0.01, epsilon=0.755, accuracy=0.6029),
    Line(sigma=0.5, clip=0.05, epsilon=0.377, accuracy=0.5832),
)
CURVE_LINE = TABLE[0]  # whose rounds it prints
TRAINING_LOSS = (0.565, 0.379, 0.304, 0.266, 0.238, 0.221)  # "Training average loss" of rounds 0 to 5
TEST_ACCURACY = (0.9357, 0.9595, 0.9682, 0.9732, 0.9766, 0.9787)
TRAIN_ACCURACY = 0.9779  # after the last round
ON_CLIP = "增大C，或者减小sigma都能加快模型收敛"
ON_SPEED = "加入截断及高斯噪声后，模型的收敛速度减慢了"

# 1,000 times each, seconds by the integers' bits; no key length is stated
REPEATS = 1000
SECONDS: Mapping[str, Mapping[int, float]] = {
    "enc_add": {10: 16.72, 100: 17.91, 1000: 30.54},
    "enc_add_const": {10: 11.41, 100: 12.56, 1000: 22.21},
}
CASES = (  # what is computed, its numbers, the result it prints
    ("dec(enc(18000290))", "enc", (18000290, 0), 18000290),
    ("enc_add(2021, 2000)", "enc_add", (2021, 2000), 4021),
    ("enc_add_const(2021, 4)", "enc_add_const", (2021, 4), 2025),
    ("enc_mul_const(2021, 4)", "enc_mul_const", (2021, 4), 8084),
)
ON_PAILLIER = "paillier仍能保证模型收敛及准确性"
ON_SLOWNESS = "训练时间远高于原来的时间"
