"""The webhook's certificate, signed by an authority of its own that exists only for that.

The authority's key is thrown away once it has signed, so nothing can be forged with it later;
renewing means a new authority. Keys are P-256, as the API server and Python's ssl both take it.
"""

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=90)
SKEW: Final = timedelta(minutes=5)
"""How far a certificate's start lies back, so that a clock that is late accepts it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A serving certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    @property
    def renew_at(self) -> datetime:
        """When two thirds of its life are over. Raises ValueError for what is no certificate."""
        read = x509.load_pem_x509_certificate(self.certificate)
        start, end = read.not_valid_before_utc, read.not_valid_after_utc
        return start + (end - start) * 2 / 3


def issue(
    names: Sequence[str], now: datetime, lifetime: timedelta = LIFETIME
) -> tuple[Pair, bytes]:
    """A new pair for DNS names and IP addresses, and the certificate of its authority in PEM."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("Shoal admission")
    span = (now - SKEW, now + lifetime)
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), span)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name("Shoal webhook"), authority_name, key.public_key(), span)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    pem = serialization.Encoding.PEM
    return Pair(certificate.public_bytes(pem), private), authority.public_bytes(pem)


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Names by which an API server calls a Service."""
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")


def first_certificate(bundle: bytes) -> bytes:
    """The first certificate of a bundle; empty if there is none."""
    end = b"-----END CERTIFICATE-----\n"
    head, found, _ = bundle.partition(end)
    return head + found if found else b""


def server_context() -> ssl.SSLContext:
    """A context for a server; `use` gives it a certificate, and again for each new one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def use(context: ssl.SSLContext, pair: Pair) -> None:
    """Serve `pair` from the next connection on; open ones are not touched.

    Raises ssl.SSLError if the key is not the certificate's.
    """
    # Python's ssl reads keys from files only.
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        certificate.write_bytes(pair.certificate)
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        context.load_cert_chain(certificate, key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    span: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(span[0])
        .not_valid_after(span[1])
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
