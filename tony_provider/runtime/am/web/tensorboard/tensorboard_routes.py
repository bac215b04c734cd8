"""The routes ``tensorboard/…``: requests for the job's TensorBoard, and what YARN's proxy would not let through."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from http import HTTPStatus
from typing import Callable, Optional
from urllib.parse import quote

import attrs

from tony_provider.runtime.am.web.http_messages import HttpError, HttpRequest, HttpResponse
from tony_provider.runtime.am.web.page.document import Document
from tony_provider.runtime.am.web.page.html import element
from tony_provider.runtime.am.web.page.job_view import PageLink
from tony_provider.runtime.am.web.router import AccessType, Route
from tony_provider.runtime.am.web.tensorboard.plugin_routes import refusal
from tony_provider.runtime.am.web.tensorboard.tensorboard_pages import (
    NotUpError,
    PageAnswer,
    PageRequest,
    TensorBoardPages,
)
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.protocol.status import JobStatus, TaskStatus
from tony_provider.runtime.spec.tensorboard import PAGE, TASK

_BELOW = f"/{PAGE}"
_SCRIPT = "tony-put.js"
_JAVASCRIPT = "text/javascript; charset=utf-8"
_HTML = "text/html"
_DOCTYPE = b"<!doctype html>"
_LOAD_AGAIN = 2  # seconds
_ASKED_HEADERS = ("accept", "accept-encoding")
# All others of TensorBoard's are about its own connection, or lead to addresses that nobody has.
_ANSWERED_HEADERS = {
    "content-security-policy": "Content-Security-Policy",
    "cache-control": "Cache-Control",
    "content-disposition": "Content-Disposition",
}
_PATH_CHARACTERS = "/-._~!$&'()*+,;=:@"
_QUERY_CHARACTERS = _PATH_CHARACTERS + "?%"


@attrs.frozen
class Posted:
    """A POST request in the form in which ``put.js`` sends it."""

    type: str  # of the body
    body: str


class TensorBoard:
    """The HTTP handlers for the TensorBoard of a job that has one. Used within a running event loop."""

    def __init__(self, asking: TensorBoardPages, status: Callable[[], JobStatus]) -> None:
        self._asking = asking
        self._status = status
        script = pkgutil.get_data(__package__, "put.js")
        assert script is not None  # noqa: S101 - it lies beside us in the archive
        self._script = script

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", _BELOW.rstrip("/"), AccessType.VIEW, self.without_slash),
            Route("GET", _BELOW + _SCRIPT, AccessType.VIEW, self.script),
            Route("GET", _BELOW, AccessType.VIEW, self.get, below=True),
            Route("PUT", _BELOW, AccessType.VIEW, self.post, below=True),  # which changes nothing
        )

    def places(self) -> Sequence[PageLink]:
        """The links to TensorBoard for the job's page."""
        return (PageLink("TensorBoard", PAGE),)

    async def without_slash(self, request: HttpRequest) -> HttpResponse:
        """Answer the address without its last slash with a page that leads on.

        Not by a redirection: YARN's proxy would follow that by itself, and the browser would not learn of it.
        """
        return _again("TensorBoard", "", 0, PAGE)

    async def script(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, _JAVASCRIPT, self._script)

    async def get(self, request: HttpRequest) -> HttpResponse:
        """Pass on a GET. Raises HttpError."""
        return await self._answer(request, PageRequest("GET", _target(request), _headers(request)))

    async def post(self, request: HttpRequest) -> HttpResponse:
        """Pass on a POST, which comes as a PUT. Raises HttpError."""
        try:
            posted = load_json(request.body, Posted)
        except CodecError as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
        headers = {**_headers(request), "content-type": posted.type}
        return await self._answer(request, PageRequest("POST", _target(request), headers, posted.body.encode()))

    async def _answer(self, request: HttpRequest, asked: PageRequest) -> HttpResponse:
        if problem := refusal(request.head.path[len(_BELOW) - 1 :], request.head.query):
            raise HttpError(HTTPStatus.FORBIDDEN, problem)
        try:
            found = await self._asking.ask(asked)
        except NotUpError as error:
            if request.head.path == _BELOW:
                return self._not_up()
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        if HTTPStatus.MULTIPLE_CHOICES <= found.status < HTTPStatus.BAD_REQUEST:
            # It redirects to nothing but its own root, which is not where ours is.
            raise HttpError(HTTPStatus.NOT_FOUND, "TensorBoard has nothing there")
        return _response(found, request.head.path)

    def _not_up(self) -> HttpResponse:
        task = self._task()
        if task is not None and task.state.is_final:
            return _page("TensorBoard has ended", f"It is {task.state.value}; the log of {TASK} says more.")
        doing = f" ({task.state.value.lower()})" if task is not None else ""
        return _again("TensorBoard is starting", f"{TASK} is not ready yet{doing}.", _LOAD_AGAIN, "")

    def _task(self) -> Optional[TaskStatus]:
        return next((task for task in self._status().tasks if task.name == TASK), None)


def _page(title: str, text: str) -> HttpResponse:
    return Document().response(HTTPStatus.OK, title, element("main", element("h1", title), element("p", text)))


def _again(title: str, text: str, seconds: int, path: str) -> HttpResponse:
    """Which then loads ``path``, relative to its own address; empty: itself."""
    where = f"{seconds}; url={path}" if path else str(seconds)
    body = element("main", element("h1", title), element("p", text))
    return Document().response(HTTPStatus.OK, title, body, head=element("meta", http_equiv="refresh", content=where))


def _target(request: HttpRequest) -> str:
    path = quote(request.head.path[len(_BELOW) - 1 :], safe=_PATH_CHARACTERS)
    query = quote(request.head.query, safe=_QUERY_CHARACTERS, encoding="latin-1", errors="replace")
    return f"{path}?{query}" if query else path


def _headers(request: HttpRequest) -> dict[str, str]:
    return {name: ", ".join(values) for name in _ASKED_HEADERS if (values := request.head.values(name))}


def _response(found: PageAnswer, path: str) -> HttpResponse:
    headers = {shown: found.headers[name] for name, shown in _ANSWERED_HEADERS.items() if name in found.headers}
    # Beside its own policy, and not over it. TensorBoard shows some of its plugins in frames.
    policy = [headers["Content-Security-Policy"]] if "Content-Security-Policy" in headers else []
    headers["Content-Security-Policy"] = ", ".join([*policy, "frame-ancestors 'self'"])
    kind = found.headers.get("content-type", "application/octet-stream")
    packed = found.headers.get("content-encoding", "identity")
    body = found.body
    if packed != "identity":
        headers["Content-Encoding"] = packed
    elif kind.startswith(_HTML):
        body = _with_script(body, path)
    return HttpResponse(found.status, kind, body, headers)


def _with_script(html: bytes, path: str) -> bytes:
    """First of all, so that no other script sees what it replaces. And fonts are asked for at our own addresses."""
    root = "../" * path[len(_BELOW) :].count("/")
    script = f'<script src="{root}{_SCRIPT}"></script>'.encode()
    start = len(_DOCTYPE) if html[: len(_DOCTYPE)].lower() == _DOCTYPE else 0
    return html[:start] + script + html[start:].replace(b"url(/font-", f"url({root}font-".encode())
