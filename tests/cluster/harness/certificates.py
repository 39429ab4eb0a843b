"""One certificate authority per cluster, and the certificates of its components and users."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A test cluster lives for minutes; a day covers one that somebody plays with.
VALID = datetime.timedelta(days=1)

# What the API server is called by its clients (the address is the first of the service network).
SERVER_NAMES = ("localhost", "127.0.0.1", "10.0.0.1", "kubernetes.default.svc")


@dataclass(frozen=True)
class KeyPair:
    """Where a certificate and its private key lie, both in PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that writes everything it issues into one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-cluster")])
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(authority=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = directory / "ca.crt"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, file: str, names: tuple[str, ...] = SERVER_NAMES) -> KeyPair:
        """Issue a serving certificate for host names and addresses, as FILE.crt and FILE.key."""
        return self._issue(file, names[0], (), names)

    def client(self, file: str, user: str, groups: tuple[str, ...] = ()) -> KeyPair:
        """Issue a client certificate: Kubernetes reads the user from CN and the groups from O."""
        return self._issue(file, user, groups, ())

    def service_account_key(self) -> KeyPair:
        """Make the key pair that signs service accounts' tokens (public part as `.pub`)."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = self._directory / "service-accounts.pub"
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return KeyPair(public, self._write_key("service-accounts", key))

    def _issue(
        self, file: str, common_name: str, organizations: tuple[str, ...], names: tuple[str, ...]
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
            + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        )
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in names]),
                critical=False,
            )
        certificate = self._directory / f"{file}.crt"
        certificate.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return KeyPair(certificate, self._write_key(file, key))

    def _write_key(self, file: str, key: ec.EllipticCurvePrivateKey) -> Path:
        path = self._directory / f"{file}.key"
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Clocks of one machine agree; the minute allows for one that is set while we run.
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + VALID)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
