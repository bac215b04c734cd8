"""Secrets and registry credentials of one application.

Each application gets new certificates and keys, which no other job may know. They are sent only in the application's
credentials (YARN's token file). They are never in environment variables, arguments, logs, the specification or the
store. The module also reads credentials of Docker registries from a ``config.json``.
"""

from __future__ import annotations

import logging
import secrets
import stat
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.sources import LocalSource
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.bounds import RECORD_LIMIT, BoundedJsonError, read_json
from tony_provider.runtime.hadoop.tokens import Token
from tony_provider.runtime.storage.base import Storage, read_whole

log = logging.getLogger(__name__)


_BEGIN = datetime(2000, 1, 1, tzinfo=UTC)  # long ago, because the clock of a node may be wrong by any amount
_VALIDITY = timedelta(days=3650)  # longer than any job; only one application uses the keys
_HMAC_KEY_BYTES = 32


def application_secrets(application_id: str, user_secrets: Mapping[str, str]) -> dict[str, bytes]:
    """Create the secrets of one application, by the names that ``contract`` defines.

    - The certificate of an authority (P-256). The authority's private key is discarded here.
    - A certificate for the application master, named after the application, and one for the master's clients.
    - HMAC keys: one for the tasks, one for the master's address, one with which user processes authenticate each other.
    - The user's own secrets.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(application_id, authority_key)
    am_certificate, am_key = _issue(authority, authority_key, application_id, ExtendedKeyUsageOID.SERVER_AUTH)
    client_certificate, client_key = _issue(
        authority, authority_key, f"client of {application_id}", ExtendedKeyUsageOID.CLIENT_AUTH
    )
    made = {
        contract.SECRET_CA: _pem(authority),
        contract.SECRET_AM_CERTIFICATE: am_certificate,
        contract.SECRET_AM_KEY: am_key,
        contract.SECRET_CLIENT_CERTIFICATE: client_certificate,
        contract.SECRET_CLIENT_KEY: client_key,
        contract.SECRET_TASK_KEY: secrets.token_bytes(_HMAC_KEY_BYTES),
        contract.SECRET_ADDRESS_KEY: secrets.token_bytes(_HMAC_KEY_BYTES),
        contract.SECRET_JOB_KEY: secrets.token_bytes(_HMAC_KEY_BYTES),
    }
    made.update({contract.user_secret(name): value.encode() for name, value in user_secrets.items()})
    return made


def _name(common_name: str) -> x509.Name:
    # X.509 limits a common name to 64 characters; application ids have about 33.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(datetime.now(UTC) + _VALIDITY)
    )


def _authority(application_id: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name(f"authority of {application_id}")
    return (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _issue(
    authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, name: str, usage: ObjectIdentifier
) -> tuple[bytes, bytes]:
    """Return a certificate and its private key, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(name), authority.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
    )
    if usage == ExtendedKeyUsageOID.SERVER_AUTH:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return _pem(certificate), private


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


_KEY = "docker.client_config"


def read_registries(config: LocalSource | LocalizedResource, storage: Storage) -> dict[str, str]:
    """Read registry credentials from a file of this machine or the store, see ``registries_in``.

    Log a warning if every user may read the file. Raises JobRejected, StorageError, OSError.
    """
    where, data, permission = _read(config, storage)
    if permission is not None and permission & stat.S_IROTH:
        log.warning("%s: every user can read %s, which contains credentials; restrict its permissions", _KEY, where)
    return registries_in(data, where)


def registries_in(data: bytes, where: str) -> dict[str, str]:
    """Return the credentials in a Docker config.json, by registry: base64 of ``user:password``, as Docker writes them.

    ``where`` is the file's name for error messages. Raises JobRejected if the data is not a config.json or holds no
    credentials.
    """
    try:
        entries = _entries(read_json(data))
    except BoundedJsonError as error:
        raise JobRejected([f"{_KEY}: {where} is not a config.json of the Docker client: {error}"]) from error
    found = {registry: auth for registry, auth in entries.items() if auth}
    if not found:
        listed = ", ".join(entries) or "no registry"
        raise JobRejected(
            [
                f"{_KEY}: {where} has no credentials, only the names of {listed}; `docker login` writes them there "
                "only if no credential helper is configured (credsStore, credHelpers)"
            ]
        )
    return found


def registry_tokens(registries: Mapping[str, str], application_id: str) -> dict[str, Token]:
    """Return one token for each registry, by the alias in the application's credentials."""
    return {
        f"{registry}-{application_id}": Token.of_registry(registry, auth, application_id)
        for registry, auth in registries.items()
    }


def _read(config: LocalSource | LocalizedResource, storage: Storage) -> tuple[str, bytes, int | None]:
    """Return the file's path or URI, its content, and its mode (None if the store has no permissions)."""
    if isinstance(config, LocalSource):
        with config.path.open("rb") as file:
            return str(config.path), file.read(RECORD_LIMIT), config.path.stat().st_mode
    return config.uri, read_whole(storage, config.uri, RECORD_LIMIT), storage.status(config.uri).permission


def _entries(plain: Any) -> dict[str, str]:
    """Return the credentials by registry; "" for a registry without credentials. Raises BoundedJsonError."""
    auths = plain.get("auths") if isinstance(plain, dict) else None
    if not isinstance(auths, dict):
        raise BoundedJsonError("it has no `auths`")
    return {registry: _auth(entry) for registry, entry in auths.items()}


def _auth(entry: Any) -> str:
    auth = entry.get("auth") if isinstance(entry, dict) else None
    return auth if isinstance(auth, str) else ""
