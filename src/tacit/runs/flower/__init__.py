"""Runs on Flower: what the nodes do with a request, and how the server finds them.

Nothing is imported here: a node is often a new process for each request, and most requests need no torch.
"""
