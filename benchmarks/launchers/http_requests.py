"""What a Python client asks for over HTTP, counted by kind."""

from __future__ import annotations

import http.client
import re
from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

_ID = re.compile(r"application_\d+_\d+")


def count_requests() -> Counter[str]:
    """From now on, of all threads of this process."""
    counts: Counter[str] = Counter()
    send = http.client.HTTPConnection.putrequest

    def putrequest(self: http.client.HTTPConnection, method: str, url: str, *rest: Any, **more: Any) -> None:
        counts[kind_of(method, url)] += 1
        return send(self, method, url, *rest, **more)

    http.client.HTTPConnection.putrequest = putrequest  # type: ignore[method-assign]
    return counts


def kind_of(method: str, url: str) -> str:
    """Such as ``WebHDFS CREATE``, ``WebHDFS CREATE (DataNode)`` or ``RM POST /ws/v1/cluster/apps``."""
    parts = urlsplit(url)
    if parts.path.startswith("/webhdfs/"):
        query = {name.lower(): values[0] for name, values in parse_qs(parts.query).items()}
        datanode = " (DataNode)" if "namenoderpcaddress" in query else ""
        return f"WebHDFS {query.get('op', '?').upper()}{datanode}"
    return f"RM {method} {_ID.sub('ID', parts.path)}"
