"""Epsilon by privacy loss distributions, bounded from both sides.

Ask ``pessimistic`` for epsilon; ``optimistic`` is the lower bound it is held against. ``loss`` and ``shuffling`` lay
the loss of one release on a grid, and ``compose`` adds up the losses of many.
"""
