"""HTTP requests to the application master, and its answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Optional

import attrs

from tony_provider.runtime.codec import dump_json

JSON = "application/json"


@attrs.frozen
class Head:
    """The first part of a request, before its body."""

    method: str
    path: str  # decoded, without the query
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # names in lower case, in the order sent

    def values(self, name: str) -> list[str]:
        """The values of every header with this name (in lower case)."""
        return [value for each, value in self.headers if each == name]


@attrs.frozen
class HttpRequest:
    """A whole request, and the user who sent it."""

    head: Head
    user: str  # who asks; empty where nobody says
    body: bytes = b""


@attrs.frozen
class HttpResponse:
    """The answer to a request."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of_object(cls, found: Any, status: int = HTTPStatus.OK) -> HttpResponse:
        """A response with an attrs object as JSON."""
        return cls(status, JSON, dump_json(found))


class HttpError(Exception):
    """An error that is the answer to a request, as JSON ``{"error": message}``."""

    def __init__(self, status: int, message: str, headers: Optional[Mapping[str, str]] = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}

    def response(self) -> HttpResponse:
        return HttpResponse(self.status, JSON, json.dumps({"error": self.message}).encode(), self.headers)
