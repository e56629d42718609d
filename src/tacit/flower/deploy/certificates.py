"""TLS certificates of a SuperLink, and the keys by which SuperNodes are known.

A new authority signs one certificate and is forgotten: nobody can sign a second one, and whoever trusts the authority's
certificate trusts that SuperLink and no other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.errors import ConfigError
from tacit.storage import write_atomically

_ITSELF = ("127.0.0.1", "localhost")  # a SuperLink's own processes reach it so
_ADVICE = "Choose another folder with --out."
_LATE_CLOCK = timedelta(hours=1)  # of a party whose clock is behind
_LONGEST_NAME = 64


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """Files of a SuperLink.

    Attributes:
        authority: whom nodes trust; for everybody.
        certificate: the SuperLink's own.
        key: its private key, readable by its owner alone.
    """

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class NodeKey:
    """Files of a SuperNode: the key it proves itself with, and the public part to be registered."""

    private: Path
    public: Path


def write_certificates(folder: Path, hosts: Sequence[str], *, days: int) -> Certificates:
    """Make an authority and a certificate for ``hosts``, names or addresses, and loopback; nothing is overwritten."""
    if not hosts:
        raise ConfigError("Expected the name or address by which nodes reach the SuperLink, got none.")
    if days < 1:
        raise ConfigError(f"Expected a certificate to last at least a day, got {days}.")
    named = [_alternative(host) for host in dict.fromkeys((*hosts, *_ITSELF))]
    start = datetime.now(UTC) - _LATE_CLOCK
    end = start + _LATE_CLOCK + timedelta(days=days)
    signing, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _name(f"Tacit authority of {hosts[0]}")
    signer = x509.SubjectKeyIdentifier.from_public_key(signing.public_key())
    authority = (
        _begun(issuer, issuer, signing.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(signer, critical=False)
        .sign(signing, hashes.SHA384())
    )
    certificate = (
        _begun(_name(hosts[0]), issuer, key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(named), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(signing, hashes.SHA384())
    )
    files = Certificates(
        authority=folder / "authority.pem", certificate=folder / "superlink.pem", key=folder / "superlink.key"
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_atomically(files.key, private, mode=0o600, replace=False, advice=_ADVICE)
    pem = serialization.Encoding.PEM
    write_atomically(files.certificate, certificate.public_bytes(pem), replace=False, advice=_ADVICE)
    write_atomically(files.authority, authority.public_bytes(pem), replace=False, advice=_ADVICE)
    return files


def write_node_key(folder: Path, name: str) -> NodeKey:
    """Make the key of a SuperNode, in the form that ``ssh-keygen -t ecdsa`` writes; nothing is overwritten."""
    key = ec.generate_private_key(ec.SECP384R1())
    files = NodeKey(private=folder / f"{name}.key", public=folder / f"{name}.pub")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_atomically(files.private, private, mode=0o600, replace=False, advice=_ADVICE)
    write_atomically(files.public, public + b"\n", replace=False, advice=_ADVICE)
    return files


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host or not all(part and part.replace("-", "").isalnum() and part.isascii() for part in host.split(".")):
        raise ConfigError(f"Expected a host's name or address, such as superlink.example.org, got {host!r}.")
    return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
