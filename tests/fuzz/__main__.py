"""The long search, ``make fuzz``: each target in a process of its own with little memory, what is found is kept.

A process is told what memory it may have in all, so that whoever asks for much gets a MemoryError, which is a finding;
and it writes down each input first, so that one that ends the process is known.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.harness import Campaign, Finding, Target
from tests.fuzz.targets import ALL

_MEMORY = 1 << 30  # bytes over what a process has when it starts
_NOTE = 1 << 17  # bytes of the note with the last input


def main() -> int:
    """Search all targets, or those that are named, and return 1 where something was found."""
    options = argparse.ArgumentParser(prog="make fuzz")
    options.add_argument("names", nargs="*", metavar="TARGET", help=f"of {', '.join(target.name for target in ALL)}")
    options.add_argument("--seconds", type=float, default=600, help="for all together")
    options.add_argument("--seed", type=int, default=None, help="another one each time, unless given")
    options.add_argument("--note", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    seed = int(time.time()) if given.seed is None else given.seed
    chosen = [target for target in ALL if not given.names or target.name in given.names]
    if not chosen:
        options.error(f"no target of these names: {', '.join(given.names)}")
    if given.note is not None:
        return _child(chosen[0], given.seconds, seed, given.note)
    print(f"{len(chosen)} targets, {given.seconds:g} seconds, seed {seed}", flush=True)
    found = sum(_searched(target, given.seconds / len(chosen), seed) for target in chosen)
    print(f"{found} findings" + (": each is kept in tests/fuzz/corpus; mend the parser and commit it" if found else ""))
    return 1 if found else 0


def _searched(target: Target, seconds: float, seed: int) -> int:
    """Search one target in a child, and return how much was found."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "note"
        note.write_bytes(bytes(_NOTE))
        words = [target.name, "--seconds", str(seconds), "--seed", str(seed), "--note", str(note)]
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "tests.fuzz", *words], capture_output=True, text=True, check=False)
        try:
            told = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            length = int.from_bytes(note.read_bytes()[:8], "big")
            what = f"the process ended with {done.returncode}: {done.stderr.strip()[-300:]}"
            told = {"tried": 0, "lines": 0, "findings": [[what, note.read_bytes()[8 : 8 + length].hex()]]}
    rate = told["tried"] / max(time.monotonic() - start, 1e-9)
    print(f"  {target.name:14} {told['tried']:>9,} inputs {rate:>7,.0f}/s {told['lines']:>5} lines", flush=True)
    for what, data in told["findings"]:
        path = Finding(target=target.name, data=bytes.fromhex(data), what=what).keep()
        print(f"    {what}\n    {path}", flush=True)
    return len(told["findings"])


def _child(target: Target, seconds: float, seed: int, note: Path) -> int:
    """Search, and say in one line of JSON what came of it."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    Campaign(target=target, seed=seed).run(0)  # what is made once is made before memory becomes scarce
    size = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE if Path("/proc").is_dir() else 0
    if size:
        resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, resource.RLIM_INFINITY))
    campaign = Campaign(target=target, seed=seed)
    with note.open("r+b") as file, mmap.mmap(file.fileno(), _NOTE) as last:

        def write_down(data: bytes) -> None:
            noted = data[: _NOTE - 8]
            last[: 8 + len(noted)] = len(noted).to_bytes(8, "big") + noted

        campaign.run(seconds, write_down)
    findings = [[finding.what, finding.data.hex()] for finding in campaign.findings.values()]
    print(json.dumps({"tried": campaign.tried, "lines": campaign.lines, "findings": findings}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
