"""The routes ``tensorboard/…``: a proxy for the job's TensorBoard that works behind YARN's proxy.

POST requests arrive as PUT (see ``put.js``). ``plugin_refusal`` rejects plug-ins that do more than read the job's data.
"""

from __future__ import annotations

import asyncio
import pkgutil
import re
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Callable, Optional
from urllib.parse import parse_qs, quote

import attrs

from tony_provider.runtime.am import executor_messages
from tony_provider.runtime.am.gateway import ExecutorRequest, ExecutorRequests, MakeQuestion, NoAnswerError
from tony_provider.runtime.am.web.job_view import PageLink
from tony_provider.runtime.am.web.page import Document, element
from tony_provider.runtime.am.web.server import AccessType, HttpError, HttpRequest, HttpResponse, Route
from tony_provider.runtime.common.codec import CodecError, load_json
from tony_provider.runtime.common.concurrency import wait_with_timeout
from tony_provider.runtime.jobspec.container_content import TENSORBOARD_PAGE, TENSORBOARD_TASK
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.protocol.status import JobStatus, TaskStatus

_BELOW = f"/{TENSORBOARD_PAGE}"
_SCRIPT = "tony-put.js"
_JAVASCRIPT = "text/javascript; charset=utf-8"
_HTML = "text/html"
_DOCTYPE = b"<!doctype html>"
_LOAD_AGAIN = 2  # seconds until the browser loads the page again
_ASKED_HEADERS = ("accept", "accept-encoding")
# All other headers of TensorBoard concern its own connection or lead to unreachable addresses.
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

    type: str  # content type of the body
    body: str


class TensorBoard:
    """The HTTP handlers for the TensorBoard of a job that has one. Requires a running event loop."""

    def __init__(self, asking: TensorBoardPages, status: Callable[[], JobStatus]) -> None:
        self._asking = asking
        self._status = status
        script = pkgutil.get_data(__package__, "put.js")
        assert script is not None  # noqa: S101 - the file is in the same archive
        self._script = script

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", _BELOW.rstrip("/"), AccessType.VIEW, self.without_slash),
            Route("GET", _BELOW + _SCRIPT, AccessType.VIEW, self.script),
            Route("GET", _BELOW, AccessType.VIEW, self.get, below=True),
            Route("PUT", _BELOW, AccessType.VIEW, self.post, below=True),  # VIEW suffices: nothing is changed
        )

    def places(self) -> Sequence[PageLink]:
        """Return the link to TensorBoard for the job's page."""
        return (PageLink("TensorBoard", TENSORBOARD_PAGE),)

    async def without_slash(self, request: HttpRequest) -> HttpResponse:
        """Return a page that leads from the address without a final slash to the right address.

        A redirection would not work: YARN's proxy would follow it, and the browser would not notice.
        """
        return _again("TensorBoard", "", 0, TENSORBOARD_PAGE)

    async def script(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, _JAVASCRIPT, self._script)

    async def get(self, request: HttpRequest) -> HttpResponse:
        """Forward a GET to TensorBoard. Raises HttpError."""
        return await self._answer(request, "GET", _headers(request))

    async def post(self, request: HttpRequest) -> HttpResponse:
        """Forward a POST, which arrives as a PUT, to TensorBoard. Raises HttpError."""
        try:
            posted = load_json(request.body, Posted)
        except CodecError as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
        headers = {**_headers(request), "content-type": posted.type}
        return await self._answer(request, "POST", headers, posted.body.encode())

    async def _answer(
        self, request: HttpRequest, method: str, headers: Mapping[str, str], body: bytes = b""
    ) -> HttpResponse:
        if problem := plugin_refusal(request.head.path[len(_BELOW) - 1 :], request.head.query):
            raise HttpError(HTTPStatus.FORBIDDEN, problem)
        make = partial(
            executor_messages.page_wanted, method=method, target=_target(request), headers=headers, body=body
        )
        try:
            found = await self._asking.ask(make)
        except NotUpError as error:
            if request.head.path == _BELOW:
                return self._not_up()
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        if HTTPStatus.MULTIPLE_CHOICES <= found.status < HTTPStatus.BAD_REQUEST:
            # TensorBoard only redirects to its own root, which has another address here.
            raise HttpError(HTTPStatus.NOT_FOUND, "TensorBoard has no page at this address")
        return _response(found, request.head.path)

    def _not_up(self) -> HttpResponse:
        task = self._task()
        if task is not None and task.state.is_final:
            return _page("TensorBoard has ended", f"State: {task.state.value}; see the log of {TENSORBOARD_TASK}.")
        doing = f" ({task.state.value.lower()})" if task is not None else ""
        return _again("TensorBoard is starting", f"{TENSORBOARD_TASK} is not ready yet{doing}.", _LOAD_AGAIN, "")

    def _task(self) -> Optional[TaskStatus]:
        return next((task for task in self._status().tasks if task.name == TENSORBOARD_TASK), None)


def _page(title: str, text: str) -> HttpResponse:
    return Document().response(HTTPStatus.OK, title, element("main", element("h1", title), element("p", text)))


def _again(title: str, text: str, seconds: int, path: str) -> HttpResponse:
    """Return a page that loads the relative ``path`` after some seconds, or reloads itself if ``path`` is empty."""
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
    # This adds to TensorBoard's own policy. Pages of this server may frame the response, because TensorBoard shows some
    # plug-ins in frames.
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
    """Insert ``put.js`` before all other scripts, so that they use its functions. Make the URLs of fonts relative."""
    root = "../" * path[len(_BELOW) :].count("/")
    script = f'<script src="{root}{_SCRIPT}"></script>'.encode()
    start = len(_DOCTYPE) if html[: len(_DOCTYPE)].lower() == _DOCTYPE else 0
    return html[:start] + script + html[start:].replace(b"url(/font-", f"url({root}font-".encode())


_AT_ONCE = 4  # limit of concurrent requests, for the master's memory
_MOST_BYTES = limits.LARGEST_PAGE
_SECONDS = 25.0  # limit for one whole page; the executor has a shorter limit


class NotUpError(Exception):
    """TensorBoard does not answer yet, or no longer answers."""


@attrs.frozen
class PageAnswer:
    """TensorBoard's answer to a request for one of its pages."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class TensorBoardPages:
    """Fetches TensorBoard's pages. Requires a running event loop."""

    def __init__(self, executor_requests: ExecutorRequests) -> None:
        self._executor_requests = executor_requests
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(self, make: MakeQuestion) -> PageAnswer:
        """Return TensorBoard's answer to a request. Raises NotUpError, HttpError."""
        try:
            async with self._turns:
                with self._executor_requests.asking(TENSORBOARD_TASK, make) as question:
                    return await wait_with_timeout(_whole(question), _SECONDS)
        except NoAnswerError as error:
            raise NotUpError(str(error)) from error
        except asyncio.TimeoutError as error:
            raise HttpError(HTTPStatus.GATEWAY_TIMEOUT, f"TensorBoard took longer than {_SECONDS:g} s") from error


async def _whole(question: ExecutorRequest) -> PageAnswer:
    """Receive all messages of an answer and return the answer. Raises NoAnswerError, NotUpError, HttpError."""
    part = await _part(question)
    if part.problem:
        if part.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise NotUpError(part.problem)
        raise HttpError(part.status, part.problem)
    status, headers = part.status, dict(part.headers)
    body = bytearray(part.data)
    while not part.last:
        part = await _part(question)
        if part.problem:
            raise HttpError(part.status, part.problem)
        body += part.data
        if len(body) > _MOST_BYTES:
            raise HttpError(HTTPStatus.BAD_GATEWAY, f"TensorBoard's answer has more than {_MOST_BYTES} bytes")
    return PageAnswer(status, headers, bytes(body))


async def _part(question: ExecutorRequest) -> tony_pb2.Page:
    return (await question.answer(_SECONDS)).page


# Routes may also lie below /experiment/<id>. The lookahead finds every route in a path, so that no route hides another.
_PLUGIN = re.compile(r"(?=/data/+plugin/+([^/]+)/*(.*))", re.DOTALL)
_READERS = frozenset(
    (
        *("audio", "core", "custom_scalars", "debugger-v2", "distributions", "graphs", "histograms", "hparams"),
        *("images", "mesh", "npmi", "pr_curves", "profile_redirect", "projector", "pytorch_profiler", "scalars"),
        *("text", "text_v2", "timeseries", "wit_redirect"),
    )
)
_PROFILER = "profile"
_PROFILER_READS = frozenset(
    ("", "config", "data", "data_csv", "hosts", "local", "module_list", "run_tools", "runs", "tools", "version")
)
_STATIC = re.compile(r"[\w-]+\.(?:css|html|js|wasm|woff2)")
_PLACES = frozenset(("run_path", "service_addr", "session_path", "worker_list"))  # parameters with hosts or directories
_INSTEAD = "`airflow tony tensorboard` shows it on your own machine"


def plugin_refusal(path: str, query: str) -> str:
    """Return the reason why a request is rejected, or an empty string if it passes."""
    for name, route in _PLUGIN.findall(path):
        if name in _READERS:
            continue
        if name != _PROFILER:
            return f"This page does not show the plug-in {name}; {_INSTEAD}"
        if places := sorted(_PLACES & parse_qs(query, keep_blank_values=True).keys()):
            return f"The profiler on this page does not accept hosts or directories as parameters ({', '.join(places)})"
        if route.rstrip("/") not in _PROFILER_READS and not _STATIC.fullmatch(route.rstrip("/")):
            return f"The profiler's {route} is not available on this page; {_INSTEAD}"
    return ""
