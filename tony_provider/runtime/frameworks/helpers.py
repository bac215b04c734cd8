"""Shell commands for programs of ours that help a framework, in the Python of the user's environment."""

from __future__ import annotations

from tony_provider.runtime.address import Address

PYTHON = '"$(command -v python || command -v python3)"'  # Debian calls it python3 only


def beside(module: str) -> str:
    """Run a module of tony_sdk's folder beside the user's command, which ends it.

    As a child of nobody's: a ``wait`` of the user's own waits for the user's own.
    """
    return f"({PYTHON} -m {module} &)"


def until_reached(address: Address) -> str:
    """Wait until something listens there; else fail, saying so."""
    return f"{PYTHON} -m tony_wait {address.host} {address.port} || exit"
