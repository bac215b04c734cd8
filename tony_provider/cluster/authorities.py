"""The file of authorities that a connection's ``verify`` names."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

ADVICE = "name the PEM file of the servers' authority in `verify`"


def problem_with(verify: bool | str, addresses: Iterable[str]) -> str:
    """Why those of the addresses that are https ones cannot be checked against this file; empty when they can.

    Empty, too, for what names no file.
    """
    if not isinstance(verify, str) or not any(address.startswith("https:") for address in addresses):
        return ""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=verify)
    except ssl.SSLError:
        return f"`verify` ({verify}) holds no certificate"
    except OSError as error:
        return f"`verify` ({verify}) cannot be read on this host: {error.strerror}"
    return ""
