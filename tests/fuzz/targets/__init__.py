"""Every format that others can hand to Tacit."""

from __future__ import annotations

from tests.fuzz.harness import Target
from tests.fuzz.targets import ciphertexts, configs, core, files, folders, frames, greetings, masked, sites, sums

ALL: tuple[Target, ...] = (
    *frames.TARGETS,
    *greetings.TARGETS,
    *ciphertexts.TARGETS,
    *sums.TARGETS,
    *masked.TARGETS,
    *files.TARGETS,
    *configs.TARGETS,
    *folders.TARGETS,
    *core.TARGETS,
    *sites.TARGETS,
)
