"""The certificates of an application, as the Airflow side makes them: authority, master, executors."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tony_provider.runtime.common import contract


def make_certificates(application_id: str) -> dict[str, bytes]:
    """By the names that they have in the credentials."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = certificate("tony", authority_key.public_key(), "tony", authority_key, authority=True)
    secrets = {contract.SECRET_CA: _pem(authority)}
    for name, certificate_secret, key_secret in (
        (application_id, contract.SECRET_AM_CERTIFICATE, contract.SECRET_AM_KEY),
        ("executor", contract.SECRET_CLIENT_CERTIFICATE, contract.SECRET_CLIENT_KEY),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        secrets[certificate_secret] = _pem(certificate(name, key.public_key(), "tony", authority_key))
        secrets[key_secret] = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    return secrets


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def certificate(
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017 - Python 3.9 runs this, too
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
