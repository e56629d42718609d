"""The experiments that Tacit grew out of, run again: what they had, what we get, and why the two differ.

An experiment is a module with one :class:`~tacit.reproduce.experiment.Experiment`; ``catalogue`` names them all,
``page`` makes a page of what one gave, and ``files`` writes it down.
"""
