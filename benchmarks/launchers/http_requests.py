"""What a Python client asks a ResourceManager for by REST, counted by kind."""

from __future__ import annotations

import http.client
import re
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

_ID = re.compile(r"application_\d+_\d+")


def count_requests() -> Counter[str]:
    """From now on, of all threads of this process."""
    counts: Counter[str] = Counter()
    send = http.client.HTTPConnection.putrequest

    def putrequest(self: http.client.HTTPConnection, method: str, url: str, *rest: Any, **more: Any) -> None:
        path = urlsplit(url).path
        if not path.startswith("/webhdfs/"):  # the NameNode counts those itself
            counts[f"ResourceManager {method} {_ID.sub('ID', path)}"] += 1
        return send(self, method, url, *rest, **more)

    http.client.HTTPConnection.putrequest = putrequest  # type: ignore[method-assign]
    return counts
