"""The forms in which the value of a secret may stand in what a program prints: as it is, and as it travels."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus


def secret_forms(secret: str) -> set[str]:
    """The value itself, its single lines, and the value as URLs, JSON, Python's ``repr`` and base64 have it.

    Of base64 that is what the value alone determines, whatever is encoded before and after it, as in ``user:password``:
    at most three characters beside it hold some bits of the value, too.
    """
    data = secret.encode("utf-8", "surrogateescape")
    return {
        secret,
        secret.strip(),
        *(line.strip() for line in secret.splitlines()),
        quote(data, safe=""),
        quote(data),
        quote_plus(data),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        *_base64_forms(data),
    }


def _base64_forms(data: bytes) -> Iterator[str]:
    """Each byte is in one of three places of four characters; those that hold bits of others are left out."""
    for before, mixed in ((0, 0), (1, 2), (2, 3)):
        code = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        inner = code[mixed:-1] if (before + len(data)) % 3 else code[mixed:]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
    yield from base64.encodebytes(data).decode().split()  # in lines of 76 characters, as base64 and openssl write it
