"""The experiments that Tacit grew out of, run again, and the measurements beside other libraries.

Each experiment has a folder with its run, what it measured and its page; ``harness`` is what they share, ``bench``
measures, and ``commands`` are ``tacit lab``, ``tacit reproduce`` and ``tacit bench``. Tacit itself imports nothing from
here but these commands, when one of them is named.
"""
