"""The inputs of every container of ours: variables, the application's description, the token file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tony_provider.runtime import contract
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import Credentials


class ContainerError(Exception):
    """The container was not launched as ours must be; the message says what is missing or malformed."""


def variable(environ: Mapping[str, str], name: str) -> str:
    """The value of an environment variable. Raises ContainerError when it is not set."""
    value = environ.get(name)
    if not value:
        raise ContainerError(f"{name} is not set")
    return value


def description(directory: Path) -> ApplicationDescription:
    """The application's description in a container's directory. Raises ContainerError."""
    try:
        return load_json((directory / contract.APPLICATION_FILE).read_bytes(), ApplicationDescription)
    except (OSError, CodecError) as error:
        raise ContainerError(f"{contract.APPLICATION_FILE}: {error}") from error


def credentials(environ: Mapping[str, str]) -> Credentials:
    """The credentials in a container's token file. Raises ContainerError."""
    try:
        return Credentials.read_file(variable(environ, contract.ENV_TOKEN_FILE))
    except (OSError, CredentialsError) as error:
        raise ContainerError(str(error)) from error
