"""Five sites and a key holder, each a process of its own, behind NVFlare's simulator.

pip install tacit 'nvflare==2.9.*'
python run.py --out nvflare-run
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import tacit
from tacit.config.run_config import RunConfig, from_mapping
from tacit.crypto import keyfile
from tacit.crypto.new_keys import KeyOptions
from tacit.holder.new import init as new_holder
from tacit.holder.settings import Settings
from tacit.protocols.signatures import new_identity
from tacit.site.new import init

HERE = Path(__file__).parent
CLIENTS = 5
SETTINGS = {
    "mode": "paillier",
    "seed": 1,  # so that the same run in one process can be compared with it
    "data": {"name": "digits", "split_seed": 1},
    "model": {"name": "logistic"},
    "federate": {"clients": CLIENTS, "rounds": 5, "minimum_clients": CLIENTS},
    "train": {"local_epochs": 2, "batch_size": 32},
    "optimizer": {"lr": 0.1},
    "engine": "flower",  # for the parties: a run that is not in one process
}


def main() -> None:
    """Set everything up, run, and show what each party has written down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("nvflare-run"), help="a new folder")
    out = parser.parse_args().out.absolute()
    out.mkdir(parents=True)
    config = from_mapping({**SETTINGS, "out": str(out / "run")})
    pin = make_holder(out)
    for number in range(CLIENTS):
        make_site(out, config, number, pin)
    folders = {f"site-{number}": ("site", out / f"site-{number}") for number in range(CLIENTS)}
    folders["holder-1"] = ("holder", out / "holder-1")
    processes = [serve(kind, folder) for kind, folder in folders.values()]
    try:
        for _, folder in folders.values():
            wait_for(folder / "socket")
        simulate(out, config, list(folders))
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait()
    for command in (["holder", "check", "holder-1"], ["site", "ledger", "site-0"]):
        print(f"\n$ tacit {' '.join(command)}", flush=True)
        subprocess.run([sys.executable, "-m", "tacit", *command], cwd=out, check=True)
    alone = {**SETTINGS, "engine": "in-process", "out": str(out / "alone")}
    tacit.run(from_mapping(alone), quiet=True)
    models = [(out / name / "model.safetensors").read_bytes() for name in ("run", "alone")]
    same = "the same model, bit for bit" if models[0] == models[1] else "ANOTHER model"
    print(f"\nThe same run in one process gives {same}.")


def make_holder(out: Path) -> Path:
    """Make the key authority: a sealed key, the sites' identities, and its rules; return the public key."""
    folder = out / "holder-1"
    folder.mkdir(mode=0o700)
    public, (private,) = KeyOptions().make()
    keyfile.save(folder / "private.key", private, passphrase="nine words of your own")
    keyfile.save(out / "public.key", public)
    lines = []
    for number in range(CLIENTS):
        secret, line = new_identity(f"site-{number}")
        path = out / f"site-{number}.key"
        path.touch(mode=0o600)
        path.write_bytes(secret)
        lines.append(line)
    (folder / "clients.pub").write_bytes(b"".join(lines))
    rules = Settings(key=folder / "private.key", clients=folder / "clients.pub", minimum_clients=CLIENTS, rounds=50)
    new_holder(folder, rules)
    return out / "public.key"


def make_site(out: Path, config: RunConfig, number: int, pin: Path) -> None:
    """Make a site that holds its part of a public data set, and a contract that allows encrypted sums."""
    rules = {"modes": [config.mode], "cohort": CLIENTS, "rounds": 50}
    values = {
        "name": f"site-{number}",
        "number": number,
        "simulation": True,  # the run has a seed; a real site says no to that
        "data": {"name": config.data.name, "dealt": True},
        "budget": {
            "epsilon": None,
            "delta": 1e-5,
            "unit": "client",
        },  # no noise is added here: sums are hidden, and not private
        "rules": rules,
        "keys": {"pin": str(pin), "identity": str(out / f"site-{number}.key")},
    }
    init(out / f"site-{number}", config.data.name, values)


def serve(kind: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start the process that holds data, or a key."""
    environment = {**os.environ, "TACIT_PASSPHRASE": "nine words of your own"} if kind == "holder" else dict(os.environ)
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "tacit", kind, "serve", str(folder)]
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def wait_for(socket: Path) -> None:
    """Wait until a process answers."""
    for _ in range(1200):
        if socket.exists():
            return
        time.sleep(0.1)
    raise SystemExit(f"{socket} is not there; see {socket.parent / 'log'}.")


def simulate(out: Path, config: RunConfig, names: list[str]) -> None:
    """Run NVFlare's simulator: a server and a client for each party, which know no data and no key."""
    job = out / "job"
    shutil.copytree(HERE / "job", job)
    (job / "app" / "config" / "settings.yaml").write_text(config.to_yaml())
    command = [sys.executable, "-m", "nvflare.cli", "simulator", str(job), "-w", str(out / "nvflare")]
    environment = {**os.environ, "TACIT_SOCKET": str(out / "{name}" / "socket")}
    subprocess.run([*command, "-c", ",".join(names), "-t", str(len(names))], env=environment, check=True)


if __name__ == "__main__":
    main()
