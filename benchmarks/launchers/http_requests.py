"""What a Python client asks a ResourceManager for by REST, or HDFS by WebHDFS, counted by kind."""

from __future__ import annotations

import http.client
import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

_WEBHDFS = "/webhdfs/"
_ID = re.compile(r"application_\d+_\d+")


def count_requests() -> Counter[str]:
    """From now on, of all threads of this process."""
    return _counting(_of_resourcemanager)


def count_webhdfs() -> Counter[str]:
    """What it asks NameNodes and DataNodes for, by operation; likewise."""
    return _counting(_of_webhdfs)


def _of_resourcemanager(method: str, url: str) -> str | None:
    path = urlsplit(url).path
    # The NameNode counts those of WebHDFS itself.
    return None if path.startswith(_WEBHDFS) else f"ResourceManager {method} {_ID.sub('ID', path)}"


def _of_webhdfs(_: str, url: str) -> str | None:
    parts = urlsplit(url)
    return parse_qs(parts.query)["op"][0] if parts.path.startswith(_WEBHDFS) else None


def _counting(name: Callable[[str, str], str | None]) -> Counter[str]:
    counts: Counter[str] = Counter()
    send = http.client.HTTPConnection.putrequest

    def putrequest(self: http.client.HTTPConnection, method: str, url: str, *rest: Any, **more: Any) -> None:
        if (named := name(method, url)) is not None:
            counts[named] += 1
        return send(self, method, url, *rest, **more)

    http.client.HTTPConnection.putrequest = putrequest  # type: ignore[method-assign]
    return counts
