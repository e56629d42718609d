"""Report 004 again: DP-SGD's sweeps and ElGamal's tables."""

from __future__ import annotations

from tacit_labs.harness.experiment import Experiment, Progress, Reproduction, Settings
from tacit_labs.lab_004.dpsgd import page as dpsgd_page
from tacit_labs.lab_004.dpsgd import run as dpsgd
from tacit_labs.lab_004.elgamal import page as elgamal_page
from tacit_labs.lab_004.elgamal import run as elgamal
from tacit_labs.lab_004.elgamal.measured import Sizes as ElGamalSizes

NAME = "lab-004"


def run(settings: Settings, progress: Progress) -> Reproduction:
    """Run everything as large as ``settings`` ask."""
    if settings.quick:
        return reproduce(dpsgd.QUICK, elgamal.QUICK, settings, progress)
    return reproduce(dpsgd.FULL, elgamal.FULL, settings, progress)


def reproduce(learning: dpsgd.Sizes, encrypting: ElGamalSizes, settings: Settings, progress: Progress) -> Reproduction:
    """Run both experiments, and make one page of them."""
    learned = dpsgd.measure(learning, settings.seed, progress)
    encrypted = elgamal.measure(encrypting, settings.work(NAME), progress)
    return Reproduction(
        settings=f"{dpsgd.settings_words(learned, learning)} {elgamal_page.settings_words(encrypted)}",
        smaller=" ".join(filter(None, (dpsgd.smaller(learning), elgamal.smaller(encrypting)))),
        findings=(*dpsgd_page.findings(learned), *elgamal_page.findings(encrypted)),
        sections=(*dpsgd_page.sections(learned), *elgamal_page.sections(encrypted)),
        tables={
            "accuracy": dpsgd_page.accuracy_table(learned),
            "claims": dpsgd_page.claims(learned),
            **elgamal_page.made_tables(encrypted),
        },
        sheets={"points": dpsgd_page.points_sheet(learned)},
        data={"dp_sgd": learned.to_dict(), "elgamal": encrypted.to_dict()},
    )


EXPERIMENT = Experiment(
    name=NAME,
    title="Report 004: DP-SGD and ElGamal",
    source=(
        "A lab report in Chinese. Its first half trains logistic regression on breast cancer with noisy gradients and "
        "sweeps epsilon, delta and the number of iterations; its curves are pictures, so that its words are compared. "
        "Its second half writes ElGamal in Python, times its three stages, shows that ciphertexts differ and multiply, "
        "and makes key generation and batches faster; all of its numbers are quoted."
    ),
    document="004_a69ec1a5888a3c07.txt",
    parts=(
        "DP-SGD over epsilon, delta and iterations",
        "L2 loss",
        "approximate advanced composition",
        "ElGamal's stages at 64 to 1024 bits",
        "key generation before and after",
        "batches",
        "randomness and products",
    ),
    quick="30 s of one core",
    full="15 min of one core",
    run=run,
)
