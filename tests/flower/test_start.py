from __future__ import annotations

import subprocess
import sys


def test_a_node_starts_without_what_only_training_needs() -> None:
    """Flower starts a process for each message, and a key holder or an app without PyTorch should not wait for it."""
    code = "import sys, tacit.flower as f; f.Private; f.private_mod; print(sorted({'torch', 'sklearn'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
