"""Control of a running job over HTTP.

======================== ============================== =============================================
``PUT control/stop``       ``{"reason": …, "grace": s}``    end the job as killed, see StopAnswer
``PUT control/checkpoint`` ``{"reason": …}``                request a checkpoint from user processes
``PUT control/export``     ``{"reason": …}``                request the model of the leading task
``PUT control/suspend``    ``{"reason": …}``                release all containers after a checkpoint
``PUT control/resume``     ``{"reason": …}``                request the containers again and resume
``PUT control/resize``     ``{"tasks": …, "reason": …}``    change the number of tasks of these types
``PUT control/tokens``     sealed ``StoreToken``            replace the store's token, see SealedOrders
``GET status``                                              the job's status
======================== ============================== =============================================

Errors are ``{"error": message}``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import math
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Callable, Optional, Protocol, TypeVar

import attrs

from tony_provider.runtime.am.session.actions import Verdict
from tony_provider.runtime.am.session.checkpoints import CHECKPOINT_WAIT
from tony_provider.runtime.am.token_replacement import StoreAccess, TokenRefusedError
from tony_provider.runtime.am.web.server import AccessType, HttpError, HttpRequest, HttpResponse, Route
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.jobspec.model import Timeouts
from tony_provider.runtime.protocol.http_messages import SealedPart
from tony_provider.runtime.protocol.sealed_tls import PipeError, TlsPipe
from tony_provider.runtime.protocol.status import ExportedModel, JobState, JobStatus
from tony_provider.runtime.protocol.store_tokens import StoreToken
from tony_provider.runtime.protocol.timing import KEEP_LOGS, RELEASE_WAIT, STOP_SLACK, stop_seconds

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_REASON = 2000  # characters
_LONGEST_GRACE = 86400.0  # seconds


class SteeredSizes(Protocol):
    """The part of the session's resizing that control needs."""

    @property
    def is_too_late(self) -> bool: ...

    def refusal(self, counts: Mapping[str, int]) -> Optional[str]: ...

    def number(self, name: str) -> int: ...


class SteeredSession(Protocol):
    """The part of the session that control needs."""

    @property
    def resizing(self) -> SteeredSizes: ...

    @property
    def verdict(self) -> Optional[Verdict]: ...

    @property
    def phase(self) -> JobState: ...


class Steered(Protocol):
    """The part of the master that control needs."""

    @property
    def session(self) -> SteeredSession: ...

    def status(self) -> JobStatus: ...

    def stop(self, reason: str, grace: Optional[float] = None) -> None: ...

    def ask_checkpoint(self, reason: str) -> None: ...

    def ask_export(self, reason: str) -> int: ...

    def suspend(self, reason: str) -> None: ...

    def resume(self, reason: str) -> None: ...

    def resize(self, counts: Mapping[str, int], reason: str) -> None: ...


@attrs.frozen
class StopOrder:
    """The body of ``PUT control/stop``: end the job."""

    reason: str
    grace: Optional[float] = None  # seconds between SIGTERM and SIGKILL of a user process; default: timeouts.grace


@attrs.frozen
class StopAnswer:
    """The answer to a StopOrder. The application ends by itself and needs no second order."""

    ends_within: float  # seconds, including last copies of checkpoints and logs; a longer time indicates a problem


@attrs.frozen
class CheckpointOrder:
    """The body of ``PUT control/checkpoint``: request a checkpoint from the tasks."""

    reason: str


@attrs.frozen
class CheckpointAsked:
    """The answer to a CheckpointOrder."""

    newest: Optional[ResumePoint] = None  # the newest committed checkpoint so far


@attrs.frozen
class ExportOrder:
    """The body of ``PUT control/export``: request an export of the leading task's model."""

    reason: str


@attrs.frozen
class ExportAsked:
    """The answer to an ExportOrder.

    The model is on the store once the job's status has an ``export`` with this ``asked_ms`` or a later one.
    """

    asked_ms: int  # identifies the request; milliseconds since the epoch
    newest: Optional[ExportedModel] = None  # the newest export so far
    checkpoint: Optional[ResumePoint] = None  # newest committed checkpoint so far, which every program leaves


@attrs.frozen
class SuspendOrder:
    """The body of ``PUT control/suspend``: release all containers until the job is resumed."""

    reason: str


@attrs.frozen
class SuspendAnswer:
    """The answer to a SuspendOrder. Once the job's state is SUSPENDED, it holds and requests no containers."""

    suspended_within: float  # seconds, including the wait for a checkpoint, the processes' grace, and the logs
    state: JobState  # the job's state at the time of the order


@attrs.frozen
class ResumeOrder:
    """The body of ``PUT control/resume``: resume a suspended job."""

    reason: str


@attrs.frozen
class ResumeAnswer:
    """The answer to a ResumeOrder."""

    state: JobState  # the job's state at the time of the order


@attrs.frozen
class ResizeOrder:
    """The body of ``PUT control/resize``: change the number of tasks."""

    tasks: dict[str, int]  # by type
    reason: str


@attrs.frozen
class ResizeAnswer:
    """The answer to a ResizeOrder. The resize is over once ``resizing`` in the job's status lacks these types."""

    before: dict[str, int]  # present or requested number of tasks by type, before the order
    state: JobState  # the job's state at the time of the order


class Control:
    """The HTTP handlers of control. Requires a running event loop."""

    def __init__(self, master: Steered, timeouts: Timeouts) -> None:
        self._master = master
        self._timeouts = timeouts
        self._ends_at: Optional[float] = None

    async def stop(self, request: HttpRequest) -> HttpResponse:
        """End the job. A repeated order changes nothing, unless it has a shorter grace."""
        order = _read(request, StopOrder)
        grace = self._timeouts.grace if order.grace is None else order.grace
        if not (math.isfinite(grace) and 0 <= grace <= _LONGEST_GRACE):
            raise HttpError(HTTPStatus.BAD_REQUEST, f"grace: a number of seconds from 0 to {_LONGEST_GRACE:.0f}")
        _check_reason(order.reason)
        now = asyncio.get_running_loop().time()
        ends_at = now + stop_seconds(grace, self._timeouts.checkpoint)
        if self._ends_at is None or ends_at < self._ends_at:
            log.info("%r asks the job to end: %s", request.user, order.reason)
            if self._master.session.verdict is None or self._ends_at is not None:
                self._master.stop(order.reason, grace)
            self._ends_at = ends_at
        return HttpResponse.of_object(StopAnswer(max(0.0, self._ends_at - now)), HTTPStatus.ACCEPTED)

    async def checkpoint(self, request: HttpRequest) -> HttpResponse:
        order = _read(request, CheckpointOrder)
        _check_reason(order.reason)
        log.info("%r asks for a checkpoint: %s", request.user, order.reason)
        self._master.ask_checkpoint(order.reason)
        return HttpResponse.of_object(CheckpointAsked(self._master.status().checkpoint), HTTPStatus.ACCEPTED)

    async def export(self, request: HttpRequest) -> HttpResponse:
        order = _read(request, ExportOrder)
        _check_reason(order.reason)
        if self._master.session.verdict is not None:
            raise HttpError(HTTPStatus.CONFLICT, "the job is ending: nobody is left to export a model")
        log.info("%r asks for an export: %s", request.user, order.reason)
        asked_ms, status = self._master.ask_export(order.reason), self._master.status()
        answer = ExportAsked(asked_ms, status.export, status.checkpoint)
        return HttpResponse.of_object(answer, HTTPStatus.ACCEPTED)

    async def suspend(self, request: HttpRequest) -> HttpResponse:
        """Suspend the job. A repeated order changes nothing."""
        order = _read(request, SuspendOrder)
        _check_reason(order.reason)
        self._check_goes_on("nothing is left to suspend")
        log.info("%r asks for the job to be suspended: %s", request.user, order.reason)
        state = self._master.session.phase
        self._master.suspend(order.reason)
        within = 0.0 if state is JobState.SUSPENDED else self._longest_suspension
        return HttpResponse.of_object(SuspendAnswer(within, state), HTTPStatus.ACCEPTED)

    async def resume(self, request: HttpRequest) -> HttpResponse:
        """Resume a suspended job, or cancel a pending suspension. Otherwise the order changes nothing."""
        order = _read(request, ResumeOrder)
        _check_reason(order.reason)
        self._check_goes_on("it cannot go on any more")
        log.info("%r asks for the job to go on: %s", request.user, order.reason)
        state = self._master.session.phase
        self._master.resume(order.reason)
        return HttpResponse.of_object(ResumeAnswer(state), HTTPStatus.ACCEPTED)

    async def resize(self, request: HttpRequest) -> HttpResponse:
        """Resize types of tasks. A repeated order changes nothing."""
        order = _read(request, ResizeOrder)
        _check_reason(order.reason)
        self._check_goes_on("nothing is left to resize")
        session = self._master.session
        if problem := session.resizing.refusal(order.tasks):
            raise HttpError(HTTPStatus.BAD_REQUEST, problem)
        if session.resizing.is_too_late:
            raise HttpError(HTTPStatus.CONFLICT, "the tasks that train together have succeeded: they never start again")
        log.info("%r asks for %s: %s", request.user, order.tasks, order.reason)
        answer = ResizeAnswer({name: session.resizing.number(name) for name in order.tasks}, session.phase)
        self._master.resize(order.tasks, order.reason)
        return HttpResponse.of_object(answer, HTTPStatus.ACCEPTED)

    def _check_goes_on(self, otherwise: str) -> None:
        session = self._master.session
        if session.verdict is not None or session.phase is JobState.FINISHING:
            raise HttpError(HTTPStatus.CONFLICT, f"the job is ending: {otherwise}")

    @property
    def _longest_suspension(self) -> float:
        """Seconds from the order to the end of the last container."""
        stop = self._timeouts.grace + self._timeouts.checkpoint + STOP_SLACK
        return CHECKPOINT_WAIT + stop + KEEP_LOGS + RELEASE_WAIT

    async def status(self, request: HttpRequest) -> HttpResponse:
        return await asyncio.to_thread(HttpResponse.of_object, self._master.status())


def _read(request: HttpRequest, cls: type[T]) -> T:
    if not request.body:  # YARN's proxy drops the body of a form, which is curl's default content type
        message = "the body is empty: send JSON, with the header Content-Type: application/json"
        raise HttpError(HTTPStatus.BAD_REQUEST, message)
    try:
        return load_json(request.body, cls)
    except CodecError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error


def _check_reason(reason: str) -> None:
    if not (0 < len(reason) <= _LONGEST_REASON and is_writable(reason)):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"reason: text of 1 to {_LONGEST_REASON} characters")


_MOST_OPEN = 16  # limit of conversations; a new one then ends the oldest
_SECONDS = 60.0  # limit for one conversation

Obey = Callable[[str, bytes], Awaitable[bytes]]
"""Given who sends an order and the order; returns the answer. May raise HttpError."""


@attrs.define(eq=False)
class _Conversation:
    pipe: TlsPipe
    user: str
    until: float  # time of the event loop


class SealedOrders:
    """The master's ends of sealed TLS conversations, each for one order. Requires a running event loop."""

    def __init__(self, context: ssl.SSLContext, obey: Obey) -> None:
        self._context = context
        self._obey = obey
        self._open: OrderedDict[str, _Conversation] = OrderedDict()

    async def put(self, request: HttpRequest) -> HttpResponse:
        part: Optional[SealedPart] = None
        try:
            part = load_json(request.body, SealedPart)
            conversation = self._conversation(part.conversation, request.user)
            conversation.pipe.take(base64.b64decode(part.data, validate=True))
            order = conversation.pipe.message()
            answer: Optional[bytes] = None
            if order is not None:
                del self._open[part.conversation]
                answer = await self._obey(request.user, order)
            said = conversation.pipe.give(answer)
        except (CodecError, PipeError, binascii.Error) as error:
            if part is not None:
                self._open.pop(part.conversation, None)
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
        return HttpResponse.of_object(SealedPart(part.conversation, base64.b64encode(said).decode()))

    def _conversation(self, name: str, user: str) -> _Conversation:
        now = asyncio.get_running_loop().time()
        for old in [each for each, found in self._open.items() if found.until < now]:
            del self._open[old]
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = _Conversation(TlsPipe(self._context), user, now + _SECONDS)
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        elif found.user != user:
            raise HttpError(HTTPStatus.FORBIDDEN, "this conversation is somebody else's")
        return found


TOKENS_PATH = "/control/tokens"


def token_route(access: StoreAccess, context: ssl.SSLContext) -> Optional[Route]:
    """Return the route for the store's tokens, or None if the store needs none.

    ``context`` is for the master's end of sealed conversations.
    """
    if access.life is None:
        return None
    orders = SealedOrders(context, partial(_obey, access))
    return Route("PUT", TOKENS_PATH, AccessType.MODIFY, orders.put)


async def _obey(access: StoreAccess, user: str, order: bytes) -> bytes:
    try:
        token = load_json(order, StoreToken)
        log.info("%r brings a token of the store", user)
        return dump_json(await access.take(token))
    except (CodecError, TokenRefusedError) as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
