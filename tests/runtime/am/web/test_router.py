"""Which request goes where."""

from __future__ import annotations

import pytest

from tony_provider.runtime.am.web.server import AccessType, Head, HttpError, HttpRequest, HttpResponse, Route, Router


async def nothing(request: HttpRequest) -> HttpResponse:
    raise AssertionError


def route(method: str, path: str, *, below: bool = False) -> Route:
    return Route(method, path, AccessType.VIEW, nothing, below=below)


EXACT = route("GET", "/tree/trunk")
TREE = route("GET", "/tree/", below=True)
PUT = route("PUT", "/tree/", below=True)
BRANCH = route("GET", "/tree/branch/", below=True)
ROUTER = Router([EXACT, TREE, PUT, BRANCH])


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/tree/trunk", EXACT),
        ("HEAD", "/tree/trunk", EXACT),
        ("GET", "/tree/", TREE),
        ("GET", "/tree/trunk/", TREE),
        ("GET", "/tree/any/thing", TREE),
        ("PUT", "/tree/any/thing", PUT),
        ("GET", "/tree/branch/leaf", BRANCH),
        ("GET", "/tree/branch", TREE),
    ],
)
def test_the_nearest_route_is_taken(method: str, path: str, expected: Route) -> None:
    assert ROUTER.find(Head(method, path)) is expected


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/tree", 404), ("GET", "/trees/", 404), ("GET", "/", 404), ("POST", "/tree/leaf", 405)],
)
def test_what_is_not_there_is_said(method: str, path: str, status: int) -> None:
    with pytest.raises(HttpError) as error:
        ROUTER.find(Head(method, path))
    assert error.value.status == status
