"""The address of an application's current master: a signed file in the application's directory.

Each master writes it once it listens; executors that have lost theirs read it. The key is one that the masters and the
executors of this application share, so that nobody else who can write to the directory can call the executors to him.
Every function blocks.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from typing import Optional

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.address import Address
from tony_provider.runtime.codec import CodecError, dump_json, load_json
from tony_provider.runtime.storage import Storage, StorageError, StorageNotFound, read_bytes, uris, write_atomically

log = logging.getLogger(__name__)

_MOST_BYTES = 4096


@attrs.frozen
class MasterAddress:
    """Where a master listens, and which one it is."""

    address: Address  # of its gRPC server
    attempt: int  # of the application master, counted by the cluster


@attrs.frozen
class _File:
    address: str
    attempt: int
    signature: str


def write(storage: Storage, application_dir: str, address: Address, attempt: int, key: bytes) -> None:
    """Write where a master listens, in place of what a former one wrote.

    ``key`` is SECRET_ADDRESS_KEY. Raises StorageError.
    """
    content = _File(str(address), attempt, _signature(key, str(address), attempt))
    write_atomically(storage, uris.join(application_dir, contract.MASTER_FILE), dump_json(content))


def read(storage: Storage, application_dir: str, key: bytes) -> Optional[MasterAddress]:
    """Where the current master listens.

    None when there is no such file, or none that can be read and was written with this key; the log says why.
    """
    try:
        return load(storage, application_dir, key)
    except (StorageError, OSError) as error:
        log.warning("the application master's address cannot be read: %s", error)
        return None


def load(storage: Storage, application_dir: str, key: bytes) -> Optional[MasterAddress]:
    """Where the current master listens, like ``read``; but a store that does not answer is no missing file.

    Raises StorageError.
    """
    uri = uris.join(application_dir, contract.MASTER_FILE)
    try:
        content = load_json(read_bytes(storage, uri, length=_MOST_BYTES), _File)
        address = Address.parse(content.address)
    except StorageNotFound:
        return None
    except (CodecError, ValueError) as error:
        log.warning("the application master's address cannot be read from %s: %s", uri, error)
        return None
    expected = _signature(key, content.address, content.attempt)
    if hmac.compare_digest(expected.encode(), content.signature.encode("utf-8", "replace")):
        return MasterAddress(address, content.attempt)
    log.warning("the application master's address in %s is not signed by one of this application", uri)
    return None


def _signature(key: bytes, address: str, attempt: int) -> str:
    return hmac.new(key, f"{attempt} {address}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
