"""Shell commands for programs of ours that help a framework, in the Python of the user's environment."""

from __future__ import annotations

from tony_provider.runtime.address import Address

PYTHON = '"$(command -v python || command -v python3)"'  # Debian calls it python3 only


def run_module(arguments: str) -> str:
    """Return the command that becomes a module of tony_sdk's folder, with its arguments."""
    return f"exec {PYTHON} -m {arguments}"


def until_reached(address: Address) -> str:
    """Wait until something listens there; else fail, saying so."""
    return f"{PYTHON} -m tony_wait {address.host} {address.port} || exit"
