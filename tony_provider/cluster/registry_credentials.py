"""The credentials of private registries, from a config.json of Docker's client, as NodeManagers take them: as tokens.

Each NodeManager writes those of a container for its own Docker, into a directory that only it can read
(org.apache.hadoop.yarn.util.DockerClientConfigHandler, from Hadoop 3.1 on). Hadoop 3.4 could also read the file itself,
by a variable that names it, but with the NodeManager's own rights, who would have to be let.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Mapping
from typing import Any

from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.sources import LocalSource
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.foreign_json import ForeignJsonError, read_json
from tony_provider.runtime.hadoop.tokens import Token
from tony_provider.runtime.most_bytes import RECORD
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.helpers import read_whole

log = logging.getLogger(__name__)

_KEY = "docker.client_config"


def read_registries(config: LocalSource | LocalizedResource, storage: Storage) -> dict[str, str]:
    """The credentials in the file, as ``registries_in``. Raises StorageError, OSError, too."""
    where, data, permission = _read(config, storage)
    if permission is not None and permission & stat.S_IROTH:
        log.warning("%s: everybody may read %s, which holds credentials; take that right away", _KEY, where)
    return registries_in(data, where)


def registries_in(data: bytes, where: str) -> dict[str, str]:
    """The credentials in a config.json, by registry: base64 of user and password, as Docker has them.

    ``where``: what the file is called. Raises JobRejected where it is none, or holds none.
    """
    try:
        entries = _entries(read_json(data))
    except ForeignJsonError as error:
        raise JobRejected([f"{_KEY}: {where} is no config.json of Docker's client: {error}"]) from error
    found = {registry: auth for registry, auth in entries.items() if auth}
    if not found:
        listed = ", ".join(entries) or "no registry"
        raise JobRejected(
            [
                f"{_KEY}: {where} holds no credentials, only the names of {listed}; `docker login` writes them there "
                "where no program keeps them instead (credsStore, credHelpers)"
            ]
        )
    return found


def registry_tokens(registries: Mapping[str, str], application_id: str) -> dict[str, Token]:
    """What goes among the tokens of an application, by their aliases."""
    return {
        f"{registry}-{application_id}": Token.of_registry(registry, auth, application_id)
        for registry, auth in registries.items()
    }


def _read(config: LocalSource | LocalizedResource, storage: Storage) -> tuple[str, bytes, int | None]:
    """What it is called, its content, and who may read it."""
    if isinstance(config, LocalSource):
        with config.path.open("rb") as file:
            return str(config.path), file.read(RECORD), config.path.stat().st_mode
    return config.uri, read_whole(storage, config.uri, RECORD), storage.status(config.uri).permission


def _entries(plain: Any) -> dict[str, str]:
    """Raises ForeignJsonError."""
    auths = plain.get("auths") if isinstance(plain, dict) else None
    if not isinstance(auths, dict):
        raise ForeignJsonError("it has no `auths`")
    return {registry: _auth(entry) for registry, entry in auths.items()}


def _auth(entry: Any) -> str:
    auth = entry.get("auth") if isinstance(entry, dict) else None
    return auth if isinstance(auth, str) else ""
