"""Reader for Java keystores of type JKS, as YARN creates them for application masters.

The format is that of ``sun.security.provider.JavaKeyStore`` (OpenJDK). Private keys are encrypted with a stream of
SHA-1 digests, as in ``sun.security.provider.KeyProtector``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import textwrap

import attrs

_MAGIC, _VERSIONS = 0xFEEDFEED, (1, 2)
_KEY, _TRUSTED = 1, 2  # types of entries
_MOST_BYTES = 1 << 20
_DIGEST = 20  # bytes of SHA-1
_WHITENER = b"Mighty Aphrodite"  # constant of the format; in the file's digest, it follows the password
_SUN_PROTECTION = bytes.fromhex("06 0a 2b 06 01 04 01 2a 02 11 01 01")  # 1.3.6.1.4.1.42.2.17.1.1, in DER
_SEQUENCE, _OCTETS = 0x30, 0x04  # tags of DER


class KeystoreError(Exception):
    """The data is not a keystore of type JKS, is damaged, or has another password."""


@attrs.frozen
class KeyEntry:
    """Private key with its certificate chain, the key's own certificate first."""

    alias: str
    key: bytes = attrs.field(repr=False)  # DER, PKCS #8
    chain: list[bytes]  # DER

    @property
    def pem(self) -> bytes:
        """The key and the certificates in PEM, as OpenSSL reads them."""
        return _pem("PRIVATE KEY", self.key) + b"".join(map(certificate_pem, self.chain))


@attrs.frozen
class JavaKeystore:
    """Content of a keystore: keys and trusted certificates."""

    keys: list[KeyEntry]
    trusted: list[bytes]  # certificates, in DER

    @property
    def only_key(self) -> KeyEntry:
        """The single key of the keystore. Raises KeystoreError if it holds none or several."""
        if len(self.keys) != 1:
            raise KeystoreError(f"it contains {len(self.keys)} keys instead of one")
        return self.keys[0]

    @classmethod
    def read(cls, content: bytes, password: str) -> JavaKeystore:
        """Decrypt and parse a keystore. Raises KeystoreError."""
        if len(content) > _MOST_BYTES:
            raise KeystoreError(f"it is larger than {_MOST_BYTES} bytes")
        if len(content) < _DIGEST or content[:4] != struct.pack(">I", _MAGIC):
            raise KeystoreError("it is not a keystore of type JKS")
        body, digest = content[:-_DIGEST], content[-_DIGEST:]
        secret = password.encode("utf-16-be", "surrogatepass")
        if not hmac.compare_digest(_sha1(secret, _WHITENER, body), digest):
            raise KeystoreError("it was modified, or the password is wrong")
        return _entries(_Reader(body, 4), secret)


def certificate_pem(der: bytes) -> bytes:
    """Return a certificate in PEM, as OpenSSL reads it."""
    return _pem("CERTIFICATE", der)


@attrs.define
class _Reader:
    """Sequential reader of numbers and bytes in Java's byte order."""

    _data: bytes
    _at: int = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise KeystoreError("it is truncated")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def number(self, size: int = 4) -> int:
        return int.from_bytes(self.take(size), "big")

    def text(self) -> str:
        # The encoding is Java's modified UTF-8, which equals UTF-8 for the ASCII texts in use.
        return self.take(self.number(2)).decode("utf-8", "replace")


def _entries(reader: _Reader, secret: bytes) -> JavaKeystore:
    version = reader.number()
    if version not in _VERSIONS:
        raise KeystoreError(f"its version {version} is not known")
    found = JavaKeystore([], [])
    for _ in range(reader.number()):
        tag, alias = reader.number(), reader.text()
        reader.take(8)  # creation time
        if tag == _KEY:
            key = _unprotected(reader.take(reader.number()), secret)
            found.keys.append(KeyEntry(alias, key, [_certificate(reader, version) for _ in range(reader.number())]))
        elif tag == _TRUSTED:
            found.trusted.append(_certificate(reader, version))
        else:
            raise KeystoreError(f"an entry of the kind {tag} is not known")
    if reader.left:
        raise KeystoreError(f"{reader.left} unexpected bytes follow the last entry")
    return found


def _certificate(reader: _Reader, version: int) -> bytes:
    kind = reader.text() if version > 1 else "X.509"
    if kind != "X.509":
        raise KeystoreError(f"a certificate of the kind {kind!r} is not known")
    return reader.take(reader.number())


def _unprotected(encrypted: bytes, secret: bytes) -> bytes:
    """Decrypt the key in an EncryptedPrivateKeyInfo (RFC 5208).

    The encrypted data consists of a salt, the key XORed with the stream of digests, and a digest of password and key.
    """
    info = _Reader(_der(_Reader(encrypted), _SEQUENCE))
    algorithm, protected = _der(info, _SEQUENCE), _der(info, _OCTETS)
    if not algorithm.startswith(_SUN_PROTECTION):
        raise KeystoreError("its key is not encrypted with the algorithm of type JKS")
    if len(protected) < 2 * _DIGEST:
        raise KeystoreError("its key is too short")
    salt, hidden, check = protected[:_DIGEST], protected[_DIGEST:-_DIGEST], protected[-_DIGEST:]
    stream, last = bytearray(), salt
    while len(stream) < len(hidden):
        last = _sha1(secret, last)
        stream += last
    key = bytes(a ^ b for a, b in zip(hidden, stream))
    if not hmac.compare_digest(_sha1(secret, key), check):
        raise KeystoreError("its key has another password")
    return key


def _der(reader: _Reader, tag: int) -> bytes:
    """Return the content of the next DER element."""
    if reader.number(1) != tag:
        raise KeystoreError("its key has an invalid encoding")
    length = reader.number(1)
    if length & 0x80:
        length = reader.number(length & 0x7F)
    return reader.take(length)


def _sha1(*parts: bytes) -> bytes:
    digest = hashlib.new("sha1", usedforsecurity=False)  # required by the format
    for part in parts:
        digest.update(part)
    return digest.digest()


def _pem(kind: str, der: bytes) -> bytes:
    text = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n".encode()
