from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from tacit.errors import ConfigError, StorageError
from tacit.flower.deploy.certificates import Certificates, write_certificates, write_node_key


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def _ask(made: Certificates, trusted: Path, host: str) -> bytes:
    """Return what a server with the new certificate says to one who trusts ``trusted``."""
    with HTTPServer((socket.gethostbyname(host), 0), _Hello) as server:
        server.timeout = 60
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.certificate, made.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            trust = ssl.create_default_context(cafile=str(trusted))
            with urlopen(f"https://{host}:{server.server_port}/", context=trust, timeout=60) as reply:
                return bytes(reply.read())
        finally:
            thread.join()


def test_who_trusts_the_authority_reaches_the_server_also_from_the_same_machine(tmp_path: Path) -> None:
    made = write_certificates(tmp_path, ["superlink.example.org", "10.0.0.5", "::1"], days=1)
    names = x509.load_pem_x509_certificate(made.certificate.read_bytes()).extensions
    found = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["superlink.example.org", "localhost"]
    assert list(map(str, found.get_values_for_type(x509.IPAddress))) == ["10.0.0.5", "::1", "127.0.0.1"]
    assert _ask(made, made.authority, "127.0.0.1") == b"hello"
    assert _ask(made, made.authority, "localhost") == b"hello"


def test_another_authority_and_another_name_are_refused(tmp_path: Path) -> None:
    made = write_certificates(tmp_path / "a", ["superlink.example.org"], days=1)
    other = write_certificates(tmp_path / "b", ["superlink.example.org"], days=1)
    with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
        _ask(made, other.authority, "127.0.0.1")
    with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
        _ask(made, made.authority, "127.0.0.2")


def test_keys_are_for_their_owner_alone_and_nothing_is_overwritten(tmp_path: Path) -> None:
    made = write_certificates(tmp_path, ["localhost"], days=1)
    key = write_node_key(tmp_path, "node")
    assert {path.stat().st_mode & 0o777 for path in (made.key, key.private)} == {0o600}
    before = made.key.read_bytes()
    with pytest.raises(StorageError, match="is there already"):
        write_certificates(tmp_path, ["localhost"], days=1)
    assert made.key.read_bytes() == before


def test_the_authority_signs_nothing_else(tmp_path: Path) -> None:
    made = write_certificates(tmp_path, ["localhost"], days=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["authority.pem", "superlink.key", "superlink.pem"]
    certificate = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 2


def test_a_node_key_is_one_that_flower_reads(tmp_path: Path) -> None:
    made = write_node_key(tmp_path, "node")
    private = load_ssh_private_key(made.private.read_bytes(), None)
    public = load_ssh_public_key(made.public.read_bytes())
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert private.public_key() == public


def test_openssl_finds_the_chain_in_order(tmp_path: Path) -> None:
    made = write_certificates(tmp_path, ["localhost", "::1"], days=1)
    command = ["openssl", "verify", "-x509_strict", "-CAfile", str(made.authority), str(made.certificate)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("host", ["", "a b", "-", "exa_mple.org", "häuser.de", "a..b", "https://x"])
def test_what_is_no_host_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="host's name or address"):
        write_certificates(tmp_path, [host], days=1)


def test_no_host_and_no_day_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got none"):
        write_certificates(tmp_path, [], days=1)
    with pytest.raises(ConfigError, match="at least a day"):
        write_certificates(tmp_path, ["localhost"], days=0)
