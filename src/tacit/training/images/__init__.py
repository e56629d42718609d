"""Convolutions of 3 x 3 and group norms of one model on a CPU, by native kernels that are faster than PyTorch's.

``_kernels.c`` has the loops and says how they save arithmetic; :mod:`tacit.training.images.network` runs a program on
them, one client after another on each core.
"""
