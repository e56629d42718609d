"""Builds the optional native parts; everything else is in pyproject.toml.

Without a C compiler the package installs without them: training runs on PyTorch and cryptography on gmpy2 alone.
"""

from pathlib import Path

from setuptools import Extension, setup


def native(name: str, *sources: str, depends: list[str] | None = None) -> Extension:
    """Return an extension for the stable ABI that the installation can do without."""
    return Extension(
        name,
        sources=list(sources),
        depends=depends or [],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-std=gnu11", "-O3", "-g0", "-Wall", "-Wextra"],
        py_limited_api=True,
        optional=True,
    )


setup(
    ext_modules=[
        native("tacit.training.lanes._kernels", "src/tacit/training/lanes/_kernels.c"),
        native(
            "tacit.crypto._native",
            "src/tacit/crypto/_native.c",
            depends=sorted(str(header) for header in Path("src/tacit/crypto/core").glob("*.h")),
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
