"""The inputs of every container of ours: variables, the application's description, the token file."""

from __future__ import annotations

import hashlib
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


def description(directory: Path, secrets: Mapping[str, bytes]) -> ApplicationDescription:
    """The application's description in a container's directory, by ``secrets`` the one that was submitted.

    Raises ContainerError.
    """
    try:
        content = (directory / contract.APPLICATION_FILE).read_bytes()
        submitted = secrets.get(contract.SECRET_DESCRIPTION)
        if submitted is not None and hashlib.sha256(content).hexdigest().encode() != submitted:
            raise ContainerError(
                f"{contract.APPLICATION_FILE} is not what was submitted: something has changed it in the staging "
                "directory, or on this node, since. Programs of other jobs may have done so that run as the same user"
            )
        return load_json(content, ApplicationDescription)
    except (OSError, CodecError) as error:
        raise ContainerError(f"{contract.APPLICATION_FILE}: {error}") from error


def take_credentials(environ: Mapping[str, str]) -> Credentials:
    """The credentials in a container's token file, which is there no longer then. Raises ContainerError.

    Any process of the same user on the node could read the file, and so could whoever talks a server of the job's into
    showing files. Nobody needs it again: the next attempt, of a master or of a task, has a container of its own.
    """
    path = Path(variable(environ, contract.ENV_TOKEN_FILE))
    try:
        found = Credentials.read_file(path)
        path.unlink()
    except (OSError, CredentialsError) as error:
        raise ContainerError(str(error)) from error
    return found
