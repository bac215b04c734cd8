"""A private key for Python's TLS, which reads one from a file only."""

from __future__ import annotations

import ssl
import tempfile


def load_key(context: ssl.SSLContext, pem: bytes) -> None:
    """Give a context a key with its certificates. The file is its owner's alone, and gone at once.

    Blocks; raises OSError, of which ssl.SSLError is one.
    """
    with tempfile.NamedTemporaryFile(dir=".", prefix=".tony-") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
