"""Builds the optional native kernels; everything else is in pyproject.toml.

Without a C compiler the package installs without them, and training runs on PyTorch alone.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tacit.training.lanes._kernels",
            sources=["src/tacit/training/lanes/_kernels.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=["-std=gnu11", "-O3", "-g0", "-Wall", "-Wextra"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
