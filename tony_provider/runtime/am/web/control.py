"""Control of a running job over HTTP.

========================== ================================ ==========================================================
``PUT control/stop``       ``{"reason": …, "grace": s}``    end the job as killed
                                                            → ``{"ends_within": s}``
``PUT control/checkpoint`` ``{"reason": …}``                request a checkpoint from user processes
                                                            → ``{"newest": the newest committed checkpoint}``
``PUT control/export``     ``{"reason": …}``                request the model of the leading task
                                                            → ``{"asked_ms": …, "newest": …, "checkpoint": …}``
``PUT control/suspend``    ``{"reason": …}``                release all containers after a checkpoint
                                                            → ``{"suspended_within": s, "state": …}``
``PUT control/resume``     ``{"reason": …}``                request the containers again and resume
                                                            → ``{"state": …}``
``PUT control/resize``     ``{"tasks": …, "reason": …}``    change the number of tasks of these types
                                                            → ``{"before": …, "state": …}``
``PUT control/tokens``     sealed ``StoreToken``            replace the store's token, see SealedOrders
``GET status``                                              the job's status
``GET story/worker-3``                                      the TaskStory of a task
========================== ================================ ==========================================================

``ends_within`` and ``suspended_within`` are upper limits in seconds, including the last copies of checkpoints and logs.
After a stop, the application ends by itself and needs no second order. ``state`` and ``before`` are the values at the
time of the order. ``before`` contains the present number of tasks by type, or the requested number during a resize. A
resize is over once ``resizing`` in the job's status lacks these types. An exported model is on the store once the job's
status has an ``export`` with at least this ``asked_ms``.

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
from collections.abc import Awaitable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.am.master import Master
from tony_provider.runtime.am.session.checkpoints import CHECKPOINT_WAIT
from tony_provider.runtime.am.session.session_events import (
    CheckpointOrder,
    Event,
    ExportRequested,
    ResizeOrder,
    ResumeOrder,
    StopOrder,
    SuspendOrder,
)
from tony_provider.runtime.am.token_replacement import StoreAccess, TokenRefusedError
from tony_provider.runtime.am.web.server import AccessType, HttpError, HttpRequest, HttpResponse, Route
from tony_provider.runtime.am.web.task_logs import task_of
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.codec import CodecError, dump_json, load_json
from tony_provider.runtime.common.concurrency import loop_time
from tony_provider.runtime.common.text import is_writable
from tony_provider.runtime.jobspec.model import Timeouts
from tony_provider.runtime.protocol import http_messages
from tony_provider.runtime.protocol.http_messages import PipeError, SealedPart, TlsPipe
from tony_provider.runtime.protocol.limits import KEEP_LOGS, RELEASE_WAIT, STOP_SLACK, stop_seconds
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.protocol.store_tokens import StoreToken

log = logging.getLogger(__name__)

T = TypeVar("T")

STORY_PATH = "/" + http_messages.STORY_PATH
_LONGEST_REASON = 2000  # characters
_LONGEST_GRACE = 86400.0  # seconds


@attrs.frozen
class ExportOrder:
    """The body of ``PUT control/export``: request an export of the leading task's model."""

    reason: str


class Control:
    """The HTTP handlers of control. Requires a running event loop."""

    def __init__(self, master: Master, timeouts: Timeouts) -> None:
        self._master = master
        self._timeouts = timeouts
        self._ends_at: Optional[float] = None  # latest end of the application after a stop order; None without one

    @property
    def routes(self) -> Iterator[Route]:
        """The routes of all orders. An order is first read and checked, then logged and posted to the master."""
        for name, (cls, obey) in _ORDERS.items():
            yield Route("PUT", f"/control/{name}", AccessType.MODIFY, partial(self._answer, cls, obey))

    async def _answer(self, cls: type[Any], obey: Callable[..., object], request: HttpRequest) -> HttpResponse:
        order = _read(request, cls)
        if not (0 < len(order.reason) <= _LONGEST_REASON and is_writable(order.reason)):
            raise HttpError(HTTPStatus.BAD_REQUEST, f"reason: must be text of 1 to {_LONGEST_REASON} characters")
        return HttpResponse.of_object(obey(self, order, request.user), HTTPStatus.ACCEPTED)

    def _post(self, event: Event, user: str) -> None:
        log.info("order of %r: %s", user, event)
        self._master.post(event)

    def _stop(self, order: StopOrder, user: str) -> object:
        """End the job. A repeated order changes nothing, unless it would end the job earlier."""
        grace = self._timeouts.grace if order.grace is None else order.grace
        if not (math.isfinite(grace) and 0 <= grace <= _LONGEST_GRACE):
            raise HttpError(HTTPStatus.BAD_REQUEST, f"grace: must be a number of seconds, 0 to {_LONGEST_GRACE:.0f}")
        now = loop_time()
        ends_at = now + stop_seconds(grace, self._timeouts.checkpoint)
        if self._ends_at is None or ends_at < self._ends_at:
            if self._master.session.verdict is None or self._ends_at is not None:
                self._post(StopOrder(order.reason, grace), user)
            self._ends_at = ends_at
        return {"ends_within": max(0.0, self._ends_at - now)}

    def _checkpoint(self, order: CheckpointOrder, user: str) -> object:
        self._expect_tasks("save a checkpoint")
        self._post(order, user)
        return {"newest": self._master.status().checkpoint}

    def _export(self, order: ExportOrder, user: str) -> object:
        self._expect_tasks("export a model")
        asked, status = ExportRequested(order.reason, epoch_ms()), self._master.status()
        self._post(asked, user)
        return {"asked_ms": asked.asked_ms, "newest": status.export, "checkpoint": status.checkpoint}

    def _suspend(self, order: SuspendOrder, user: str) -> object:
        """Suspend the job. A repeated order changes nothing."""
        state = self._running_state("it cannot be suspended any more")
        self._post(order, user)
        stop = self._timeouts.grace + self._timeouts.checkpoint + STOP_SLACK
        longest = CHECKPOINT_WAIT + stop + KEEP_LOGS + RELEASE_WAIT
        return {"suspended_within": 0.0 if state is JobState.SUSPENDED else longest, "state": state}

    def _resume(self, order: ResumeOrder, user: str) -> object:
        """Resume a suspended job, or cancel a pending suspension. Otherwise the order changes nothing."""
        state = self._running_state("it cannot be resumed any more")
        self._post(order, user)
        return {"state": state}

    def _resize(self, order: ResizeOrder, user: str) -> object:
        """Resize types of tasks. A repeated order changes nothing."""
        state, resizing = self._running_state("it cannot be resized any more"), self._master.session.resizing
        if problem := resizing.refusal(order.tasks):
            raise HttpError(HTTPStatus.BAD_REQUEST, problem)
        if resizing.is_too_late:
            raise HttpError(HTTPStatus.CONFLICT, "the tasks that train together have succeeded and do not restart")
        before = {name: self._master.session.sizes.number(name) for name in order.tasks}
        self._post(order, user)
        return {"before": before, "state": state}

    def _expect_tasks(self, purpose: str) -> None:
        """Raise HttpError if the job is suspended or ending."""
        if self._running_state(f"no task is left to {purpose}") is JobState.SUSPENDED:
            raise HttpError(HTTPStatus.CONFLICT, f"the job is suspended: no task runs that could {purpose}")

    def _running_state(self, otherwise: str) -> JobState:
        """Return the job's state. Raise HttpError if the job is ending."""
        session = self._master.session
        if session.verdict is not None or session.phase is JobState.FINISHING:
            raise HttpError(HTTPStatus.CONFLICT, f"the job is ending: {otherwise}")
        return session.phase

    async def story(self, request: HttpRequest) -> HttpResponse:
        task = task_of(self._master.status(), request.head.path[len(STORY_PATH) :])
        return HttpResponse.of_object(self._master.session.story(task.name))

    async def status(self, request: HttpRequest) -> HttpResponse:
        return await asyncio.to_thread(HttpResponse.of_object, self._master.status())


_ORDERS: Mapping[str, tuple[type[Any], Callable[..., object]]] = {
    "stop": (StopOrder, Control._stop),
    "checkpoint": (CheckpointOrder, Control._checkpoint),
    "export": (ExportOrder, Control._export),
    "suspend": (SuspendOrder, Control._suspend),
    "resume": (ResumeOrder, Control._resume),
    "resize": (ResizeOrder, Control._resize),
}
"""By path: the class of the body, and the method that checks the order, posts it and returns the answer."""


def _read(request: HttpRequest, cls: type[T]) -> T:
    if not request.body:  # YARN's proxy drops the body of a form, which is curl's default content type
        message = "the body is empty: send JSON, with the header Content-Type: application/json"
        raise HttpError(HTTPStatus.BAD_REQUEST, message)
    try:
        return load_json(request.body, cls)
    except CodecError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error


_MOST_OPEN = 16  # limit of conversations; above it, a new conversation ends the oldest
_SECONDS = 60.0  # limit for one conversation

Obey = Callable[[str, bytes], Awaitable[bytes]]
"""Function that gets a user and the order of that user, and returns the answer. May raise HttpError."""


@attrs.define(eq=False)
class _Conversation:
    pipe: TlsPipe
    user: str
    until: float  # deadline, in the event loop's time


class SealedOrders:
    """The master's side of sealed conversations. Each conversation transports one order through TLS in HTTP bodies.

    Requires a running event loop.
    """

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
        now = loop_time()
        for old in [each for each, found in self._open.items() if found.until < now]:
            del self._open[old]
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = _Conversation(TlsPipe(self._context), user, now + _SECONDS)
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        elif found.user != user:
            raise HttpError(HTTPStatus.FORBIDDEN, "another user has opened this connection")
        return found


TOKENS_PATH = "/control/tokens"


def token_route(access: StoreAccess, context: ssl.SSLContext) -> Optional[Route]:
    """Return the route for the store's tokens, or None if the store needs no token.

    ``context`` is for the master's end of sealed conversations.
    """
    if access.life is None:
        return None
    orders = SealedOrders(context, partial(_obey, access))
    return Route("PUT", TOKENS_PATH, AccessType.MODIFY, orders.put)


async def _obey(access: StoreAccess, user: str, order: bytes) -> bytes:
    try:
        token = load_json(order, StoreToken)
        log.info("%r sent a token of the store", user)
        return dump_json(await access.take(token))
    except (CodecError, TokenRefusedError) as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from error
