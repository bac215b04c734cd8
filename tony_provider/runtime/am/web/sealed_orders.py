"""Orders to the master that nobody between may read: ``PUT control/tokens``, in two requests or more.

Each request carries what the sender's end of a TLS connection has to say, each answer what the master's end does. The
master proves who it is by the certificate of its application; who sends it, YARN's proxy says, as with every order.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections import OrderedDict
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Callable, Optional

import attrs

from tony_provider.runtime.am.web.http_messages import HttpError, HttpRequest, HttpResponse
from tony_provider.runtime.codec import CodecError, load_json
from tony_provider.runtime.protocol.sealed_part import SealedPart
from tony_provider.runtime.sealed.tls_pipe import PipeError, TlsPipe

_MOST_OPEN = 16  # conversations; who begins another one ends the oldest
_SECONDS = 60.0  # for one conversation

Obey = Callable[[str, bytes], Awaitable[bytes]]
"""Given who sends an order and the order; returns the answer. May raise HttpError."""


@attrs.define(eq=False)
class _Conversation:
    pipe: TlsPipe
    user: str
    until: float  # the loop's time


class SealedOrders:
    """The master's ends of such conversations, each good for one order. Used within a running event loop."""

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
