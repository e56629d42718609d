from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.common_crypto import Tacit


@pytest.fixture
def tacit_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tacit:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("TACIT_PASSPHRASE", raising=False)
    return Tacit(patch=monkeypatch, capture=capfd)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with short keys: a, b (Paillier), t (2 of 3 shares), e (ElGamal)."""
    from tacit.crypto import elgamal, groups, keyfile, paillier, threshold
    from tacit.crypto.primes import safe_prime

    folder = tmp_path_factory.mktemp("keys")
    for name in ("a", "b"):
        public, private = paillier.generate(bits=512, insecure_key_size=True)
        keyfile.save(folder / name / "public.key", public)
        keyfile.save(folder / name / "private.key", private)
    together, shares = threshold.generate(shares=3, threshold=2, bits=512, insecure_key_size=True)
    keyfile.save(folder / "t" / "public.key", together)
    for share in shares:
        keyfile.save(folder / "t" / f"share-{share.index}.key", share)
    group = groups.own(safe_prime(256), insecure_key_size=True)
    counting, opening = elgamal.generate(group, insecure_key_size=True)
    keyfile.save(folder / "e" / "public.key", counting)
    keyfile.save(folder / "e" / "private.key", opening)
    return folder
