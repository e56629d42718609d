"""Builds the optional native parts; everything else is in pyproject.toml.

Without a C compiler the package installs without them: training runs on PyTorch and cryptography on gmpy2 alone.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

HARDENING = (
    "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3",  # lengths of copies, checked where the compiler knows the room
    "-fstack-protector-strong",
    "-fstack-clash-protection",
    "-fcf-protection",  # x86: calls and returns go where calls and returns may
)
LINKING = ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"] if sys.platform == "linux" else []


class Hardened(build_ext):
    """Adds those of the protections that this compiler knows."""

    def build_extensions(self) -> None:
        """Build with them."""
        known = [option for options in HARDENING if self.accepts(options.split()) for option in options.split()]
        for extension in self.extensions:
            extension.extra_compile_args += known
            extension.extra_link_args += LINKING
        super().build_extensions()

    def accepts(self, options: list[str]) -> bool:
        """Return whether the compiler takes options without a word."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "probe.c"
            source.write_text("int main(void) { return 0; }\n")
            try:
                self.compiler.compile([str(source)], folder, extra_postargs=["-O3", "-Werror", *options])
            except CompileError:
                return False
        return True


def native(name: str, *sources: str, depends: list[str] | None = None, options: Sequence[str] = ()) -> Extension:
    """Return an extension for the stable ABI that the installation can do without."""
    return Extension(
        name,
        sources=list(sources),
        depends=depends or [],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-std=gnu11", "-O3", "-g0", "-Wall", "-Wextra", *options],
        py_limited_api=True,
        optional=True,
    )


setup(
    ext_modules=[
        # Square roots set no errno, and numbers trap nowhere: loops over them become vectors.
        native("tacit._noise", "src/tacit/_noise.c", options=["-pthread", "-fno-math-errno", "-fno-trapping-math"]),
        # Two are compiled for OpenMP and not linked with any: PyTorch has loaded its own.
        native(
            "tacit.training.private._rows",
            "src/tacit/training/private/_rows.c",
            options=["-fopenmp", "-fno-trapping-math"],
        ),
        native("tacit.training.lanes._kernels", "src/tacit/training/lanes/_kernels.c"),
        native(
            "tacit.training.native._kernels",
            "src/tacit/training/native/_kernels.c",
            depends=sorted(str(header) for header in Path("src/tacit/training/native").glob("*.h")),
            options=["-fopenmp"],
        ),
        native(
            "tacit.crypto._native",
            "src/tacit/crypto/_native.c",
            depends=sorted(str(header) for header in Path("src/tacit/crypto/core").glob("*.h")),
        ),
    ],
    cmdclass={"build_ext": Hardened},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
