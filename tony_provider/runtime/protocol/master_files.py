"""Files about an application's master: its signed address on the store, and its report and tracking URL for local jobs.

Each master writes its address when it starts to listen. Executors that have lost their master read the address. The
masters and executors of the application share the signing key, so other writers to the directory cannot redirect
executors. All functions block.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.files import write_private_file
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.protocol.status import FinalStatus
from tony_provider.runtime.storage import Storage, StorageError, StorageNotFound, read_bytes, uris, write_atomically

log = logging.getLogger(__name__)

_MOST_BYTES = 4096


@attrs.frozen
class MasterAddress:
    """Address and attempt number of a master."""

    address: Address  # address of the master's gRPC server
    attempt: int  # attempt number of the application master, as counted by the cluster


@attrs.frozen
class _File:
    address: str
    attempt: int
    signature: str


def write_master_address(storage: Storage, application_dir: str, address: Address, attempt: int, key: bytes) -> None:
    """Write the address of a master, and replace its predecessor's address.

    ``key`` is SECRET_ADDRESS_KEY. Raises StorageError.
    """
    content = _File(str(address), attempt, _signature(key, str(address), attempt))
    write_atomically(storage, uris.join(application_dir, contract.MASTER_FILE), dump_json(content))


def read_master_address(storage: Storage, application_dir: str, key: bytes) -> Optional[MasterAddress]:
    """Read the address of the current master.

    Returns None if the file is missing, unreadable, or not signed with this key; the log names the reason.
    """
    try:
        return load_master_address(storage, application_dir, key)
    except (StorageError, OSError) as error:
        log.warning("the application master's address cannot be read: %s", error)
        return None


def load_master_address(storage: Storage, application_dir: str, key: bytes) -> Optional[MasterAddress]:
    """Read the address of the current master like ``read_master_address``, but raise an error if the store fails.

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
    log.warning("the application master's address in %s has no valid signature of this application", uri)
    return None


def _signature(key: bytes, address: str, attempt: int) -> str:
    return hmac.new(key, f"{attempt} {address}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


FINISHED_FILE = "finished.json"  # file in the directory LocalAccess.root


@attrs.frozen
class FinalReport:
    """Outcome of an application, as its master reported it."""

    final_status: FinalStatus
    diagnostics: str
    tracking_url: str
    finished_ms: int  # end of the application in epoch milliseconds


def write_report(root: Path, report: FinalReport) -> None:
    """Write the report atomically. Raises OSError."""
    partial = root / f".{FINISHED_FILE}.part"
    partial.write_bytes(dump_json(report))
    partial.replace(root / FINISHED_FILE)


def read_report(root: Path) -> Optional[FinalReport]:
    """Read the report. Return None if the application master has not reported its end. Raises CodecError, OSError."""
    try:
        return load_json((root / FINISHED_FILE).read_bytes(), FinalReport)
    except FileNotFoundError:
        return None


TRACKING_FILE = "tracking-url"  # file in the directory LocalAccess.root, like SECRET_FILE
SECRET_FILE = "tracking-secret"


def write_tracking_url(root: Path, url: str) -> None:
    """Write the tracking URL atomically. Raises OSError."""
    write_private_file(root / TRACKING_FILE, url.encode("ascii"))


def read_tracking_url(root: Path) -> Optional[str]:
    """Read the tracking URL. Return None if no master has registered. Raises OSError."""
    return _read(root / TRACKING_FILE)


def make_tracking_secret(root: Path) -> str:
    """Create, write and return a new secret. Each master creates its own secret. Raises OSError."""
    secret = secrets.token_hex(32)
    write_private_file(root / SECRET_FILE, secret.encode("ascii"))
    return secret


def read_tracking_secret(root: Path) -> Optional[str]:
    """Read the secret. Return None if no secret exists. Raises OSError."""
    return _read(root / SECRET_FILE)


def _read(path: Path) -> Optional[str]:
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
