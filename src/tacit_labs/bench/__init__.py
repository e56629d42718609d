"""Measurements side by side with the peers that people use: what ``tacit bench`` runs, and ``benchmarks/`` calls.

A **worker** is a process that does jobs when it is asked, so that the jobs of all sides can be interleaved:
a noisy neighbour on the machine then hits all of them. The best of several counts, and a benchmark returns plain
values that go to a file, a table and a figure.
"""
