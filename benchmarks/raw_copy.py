"""The fastest possible copy over WebHDFS: one streamed CREATE or OPEN for each file, without checks and renames."""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

CHUNK = 1 << 20  # bytes, as the storage has it


def copy(files: Sequence[Path], address: str, user: str, directory: str, *, at_once: int) -> None:
    """``address`` of the NameNode, ``directory`` a path on HDFS."""
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda file: _create(file, address, user, f"{directory}/{file.name}"), files))


def fetch(path: str, address: str, user: str, target: Path) -> None:
    """Read one file into ``target``. See ``copy``."""
    location = urlsplit(_redirect(address, f"/webhdfs/v1{quote(path)}?op=OPEN&user.name={user}", "GET"))
    assert location.hostname
    connection = http.client.HTTPConnection(location.hostname, location.port, timeout=120)
    connection.request("GET", f"{location.path}?{location.query}")
    answer = connection.getresponse()
    with target.open("wb") as file:
        shutil.copyfileobj(answer, file, CHUNK)
    connection.close()
    if answer.status != 200:
        raise OSError(f"the DataNode answered {answer.status}")


def _create(file: Path, address: str, user: str, target: str) -> None:
    path = f"/webhdfs/v1{quote(target)}?op=CREATE&overwrite=true&user.name={user}"
    location = urlsplit(_redirect(address, path))
    assert location.hostname
    connection = http.client.HTTPConnection(location.hostname, location.port, timeout=120)
    with file.open("rb", buffering=0) as source:
        connection.putrequest("PUT", f"{location.path}?{location.query}")
        connection.putheader("Content-Length", str(file.stat().st_size))
        connection.endheaders()
        while chunk := source.read(CHUNK):
            connection.send(chunk)
    status = connection.getresponse().status
    connection.close()
    if status != 201:
        raise OSError(f"the DataNode answered {status}")


def _redirect(address: str, path: str, method: str = "PUT") -> str:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.request(method, path)
    location = connection.getresponse().getheader("Location")
    connection.close()
    if location is None:
        raise OSError("the NameNode named no DataNode")
    return location
