"""Routes of the web server: which request goes where, and what its sender must be allowed."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from enum import Enum
from http import HTTPStatus
from typing import Callable, Optional

import attrs

from tony_provider.runtime.am.web.http_messages import Head, HttpError, HttpRequest, HttpResponse
from tony_provider.runtime.hadoop.access_list import MODIFY_APP, VIEW_APP

Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class AccessType(Enum):
    """What a sender must be allowed, by the names of YARN's access lists of an application."""

    VIEW = VIEW_APP
    MODIFY = MODIFY_APP


@attrs.frozen
class Route:
    """One address of the web server, and who may use it."""

    method: str
    path: str
    access: AccessType
    handle: Handler
    below: bool = False  # everything whose path begins with ``path``, which ends with a slash


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._paths: dict[str, dict[str, Route]] = {}
        self._prefixes: dict[str, dict[str, Route]] = {}
        for route in routes:
            paths = self._prefixes if route.below else self._paths
            paths.setdefault(route.path, {})[route.method] = route

    def find(self, head: Head) -> Route:
        """The route for a request. Raises HttpError when there is none.

        A path of its own goes before a longer prefix, and that before a shorter one.
        """
        methods = self._paths.get(head.path) or self._below(head.path)
        if methods is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "there is no such page")
        route = methods.get("GET" if head.method == "HEAD" else head.method)
        if route is None:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed}", {"Allow": allowed})
        return route

    def _below(self, path: str) -> Optional[dict[str, Route]]:
        prefixes = [prefix for prefix in self._prefixes if path.startswith(prefix)]
        return self._prefixes[max(prefixes, key=len)] if prefixes else None
