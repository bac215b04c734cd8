"""Check of the staging directory: a small file is written to it, read back, and removed."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlsplit

from tony_provider.cluster.diagnosis.finding import Finding, ok, problem
from tony_provider.cluster.diagnosis.http import CONNECT_SECONDS, Way
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, temporary_name
from tony_provider.runtime.storage.errors import StorageError, StorageNotEmpty
from tony_provider.runtime.storage.helpers import read_bytes

STAGING = "Staging directory"
DATANODE = "DataNode"
_CONTENT = b"Written by a check of a tony connection; it may be removed.\n"

FindDataNode = Callable[[str], str | None]


def check_staging(storage: Storage, staging_dir: str, find_datanode: FindDataNode | None) -> Iterator[Finding]:
    """Check that files can be put into the staging directory, and be read back.

    :param find_datanode: from a URI to the address that its bytes would go to; None where the store has none.
    """
    what = f"{STAGING} {staging_dir}"
    directory = uris.join(staging_dir, temporary_name())
    made = _missing(storage, staging_dir)
    try:
        storage.make_directories(directory)
        if find_datanode is not None:
            address = find_datanode(uris.join(directory, "where"))
            if found := _unreachable(address):
                yield found
                return
            yield ok(f"{DATANODE} {address}", "reachable")
        file = uris.join(directory, "check")
        storage.write(file, _CONTENT)
        if read_bytes(storage, file) != _CONTENT:
            yield problem(what, "what was written is not what is read", "look at the store's own health")
            return
        yield ok(what, "a file was written, read and removed")
    except StorageError as error:
        yield problem(what, str(error), "" if error.advice else _advice(error))
    finally:
        _remove(storage, directory, made)


def _missing(storage: Storage, uri: str) -> list[str]:
    """The directories that are not there, the innermost first."""
    missing = []
    while uri != uris.parent(uri) and not storage.exists(uri):
        missing.append(uri)
        uri = uris.parent(uri)
    return missing


def _remove(storage: Storage, directory: str, made: list[str]) -> None:
    with contextlib.suppress(StorageError):
        storage.remove(directory, recursive=True)
        for each in made:
            with contextlib.suppress(StorageNotEmpty):  # a job has begun to use it
                storage.remove(each)


def _advice(_error: StorageError) -> str:
    return "let the user write there, or name another `staging_dir` in the connection"


def datanode_finder(namenode: str, way: Way) -> FindDataNode:
    """A function that asks a NameNode where the bytes of a file would go; no file is made by that."""

    def find(uri: str) -> str | None:
        path = quote(uris.parse(uri).path)
        response = way.send("PUT", f"{namenode}/webhdfs/v1{path}?op=CREATE")
        location = urlsplit(response.headers.get("Location", ""))
        if not location.hostname:
            return None
        return f"{location.scheme}://{location.netloc}"

    return find


def _unreachable(address: str | None) -> Finding | None:
    advice = "the NameNode sends us there: this host must resolve and reach the DataNodes' names and HTTP ports"
    if address is None:
        return problem(DATANODE, "the NameNode names none", "see that DataNodes run: hdfs dfsadmin -report")
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return None
    except socket.gaierror:
        return problem(f"{DATANODE} {address}", f"the name {host!r} has no address here", advice)
    except TimeoutError:
        return problem(f"{DATANODE} {address}", f"no connection within {CONNECT_SECONDS:g} s", advice)
    except OSError as error:
        return problem(f"{DATANODE} {address}", f"it cannot be reached: {error.strerror}", advice)
