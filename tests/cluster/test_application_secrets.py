from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tony_provider.cluster.application_secrets import application_secrets
from tony_provider.runtime.common import contract

APPLICATION = "application_1700000000000_0042"


@pytest.fixture(scope="module")
def secrets() -> dict[str, bytes]:
    return application_secrets(APPLICATION, {"API_KEY": "s3cret ä"})


def test_certificates_are_of_the_one_authority_and_named_after_the_application(secrets: dict[str, bytes]) -> None:
    authority = x509.load_pem_x509_certificate(secrets[contract.SECRET_CA])
    master = x509.load_pem_x509_certificate(secrets[contract.SECRET_AM_CERTIFICATE])
    client = x509.load_pem_x509_certificate(secrets[contract.SECRET_CLIENT_CERTIFICATE])
    for certificate in (master, client):
        certificate.verify_directly_issued_by(authority)
        assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    names = master.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [APPLICATION]
    assert master.subject.rfc4514_string() == f"CN={APPLICATION}"


def test_certificates_are_valid_where_clocks_are_wrong(secrets: dict[str, bytes]) -> None:
    """Seen: on nodes that were 50 hours behind, certificates were not yet valid, and no executor registered."""
    authority = x509.load_pem_x509_certificate(secrets[contract.SECRET_CA])
    master = x509.load_pem_x509_certificate(secrets[contract.SECRET_AM_CERTIFICATE])
    client = x509.load_pem_x509_certificate(secrets[contract.SECRET_CLIENT_CERTIFICATE])
    now = datetime.now(UTC)
    for certificate in (authority, master, client):
        assert certificate.not_valid_before_utc < now - timedelta(days=20 * 365)
        assert certificate.not_valid_after_utc > now + timedelta(days=5 * 365)


def test_nothing_can_issue_another_certificate(secrets: dict[str, bytes]) -> None:
    keys = [value for name, value in secrets.items() if b"PRIVATE KEY" in value]
    authority = x509.load_pem_x509_certificate(secrets[contract.SECRET_CA]).public_key()
    assert len(keys) == 2
    for key in keys:
        assert load_pem_private_key(key, None).public_key() != authority


def test_both_sides_shake_hands(secrets: dict[str, bytes], tmp_path: Path) -> None:
    def context(purpose: ssl.Purpose, certificate: str, key: str) -> ssl.SSLContext:
        made = ssl.create_default_context(purpose, cadata=secrets[contract.SECRET_CA].decode())
        chain = tmp_path / f"{purpose.name}.pem"
        chain.write_bytes(secrets[certificate] + secrets[key])
        made.load_cert_chain(chain)
        made.verify_mode = ssl.CERT_REQUIRED
        return made

    server = context(ssl.Purpose.CLIENT_AUTH, contract.SECRET_AM_CERTIFICATE, contract.SECRET_AM_KEY)
    client = context(ssl.Purpose.SERVER_AUTH, contract.SECRET_CLIENT_CERTIFICATE, contract.SECRET_CLIENT_KEY)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=APPLICATION),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(sides)
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    assert sides[1].getpeercert()


def test_each_application_has_its_own(secrets: dict[str, bytes]) -> None:
    other = application_secrets(APPLICATION, {})
    assert all(other[name] != secrets[name] for name in other)
    assert len(secrets[contract.SECRET_TASK_KEY]) == 32


def test_user_secrets_are_kept_apart_by_their_prefix(secrets: dict[str, bytes]) -> None:
    assert secrets[contract.SECRET_USER_PREFIX + "API_KEY"].decode() == "s3cret ä"
