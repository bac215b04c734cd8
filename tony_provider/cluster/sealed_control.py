"""Orders to an application's master that nobody on their way can read, YARN's proxy included."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Callable
from typing import Any

from tony_provider.cluster.errors import UnexpectedAnswer
from tony_provider.runtime.codec import CodecError, from_plain, to_plain
from tony_provider.runtime.protocol.sealed_part import SealedPart
from tony_provider.runtime.sealed.tls_pipe import PipeError, TlsPipe, client_context

_MOST_PARTS = 6  # TLS 1.3 takes two


def send_sealed(
    ask: Callable[[dict[str, Any]], dict[str, Any]], application_id: str, authority: str, order: bytes
) -> bytes:
    """The answer of the master of a running application to an order that only it can read.

    ``ask``: brings the master the body of one request, and returns its answer; it is called twice. ``authority``: PEM,
    the certificate that vouches for the master.

    Raises UnexpectedAnswer where somebody else answers, or the order is not taken; as ``ask``.
    """
    name = secrets.token_hex(16)
    sent = False
    try:
        pipe = TlsPipe(client_context(authority), application_id)
        said = pipe.give()
        for _ in range(_MOST_PARTS):
            part = SealedPart(name, base64.b64encode(said).decode())
            pipe.take(_data(ask(to_plain(part))))
            if (message := pipe.message()) is not None:
                return message
            said = pipe.give(order if pipe.is_open and not sent else None)
            sent = sent or pipe.is_open
    except PipeError as error:
        raise UnexpectedAnswer(f"{application_id}: {error}") from error
    raise UnexpectedAnswer(f"{application_id}: its master does not come to an end")


def _data(answer: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(from_plain(answer, SealedPart).data, validate=True)
    except (CodecError, binascii.Error) as error:
        raise UnexpectedAnswer(f"the application's master answers with what is no sealed part: {error}") from error
