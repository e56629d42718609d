"""A key holder's own process: it answers three frames (KEY, ADMIT, OPEN) on a socket, and remembers for the key's life.

* :mod:`tacit.holder.settings`: ``holder.yaml``, which the operator writes and no message changes.
* :mod:`tacit.holder.memory`: who was in every sum that was opened, in SQLite, on disk before a reply leaves.
* :mod:`tacit.holder.process`: the answers.
* :mod:`tacit.holder.new`: a new holder's folder.
"""
