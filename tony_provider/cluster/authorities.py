"""The file of authorities that a connection's ``verify`` names."""

from __future__ import annotations

import ssl

ADVICE = "name the PEM file of the servers' authority in `verify`"


def problem_with(verify: bool | str) -> str:
    """Why https servers cannot be checked against this file; empty when they can, and for what is no file."""
    if not isinstance(verify, str):
        return ""
    try:
        ssl.create_default_context().load_verify_locations(cafile=verify)
    except ssl.SSLError:
        return f"`verify` ({verify}) holds no certificate"
    except OSError as error:
        return f"`verify` ({verify}) cannot be read on this host: {error.strerror}"
    return ""
