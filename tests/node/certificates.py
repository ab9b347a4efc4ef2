"""Certificates made on the spot, for doors with TLS."""

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Files(NamedTuple):
    """Where a certificate and its key lie."""

    cert: str
    key: str


def certificate(directory: Path, name: str = "door", *, passphrase: bytes | None = None) -> Files:
    """A certificate for 127.0.0.1 and localhost that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    made = (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    how: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        how = serialization.BestAvailableEncryption(passphrase)
    files = Files(str(directory / f"{name}.pem"), str(directory / f"{name}.key"))
    Path(files.cert).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.PKCS8
    Path(files.key).write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, how))
    return files
