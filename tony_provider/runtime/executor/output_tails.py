"""The end of the user processes' output so far: for whoever looks at the job's page, or as last words."""

from __future__ import annotations

import asyncio
import logging
from typing import Callable

from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.output import TAIL_LIMIT, Output
from tony_provider.runtime.kept_log import kept_form
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.text import masked_in_place, without_cut_secret

log = logging.getLogger(__name__)


async def answer_tail(
    output: Output, wanted: tony_pb2.TailWanted, send: Callable[[tony_pb2.FromExecutor], None]
) -> None:
    """Send the end of the output that the application master has asked for."""
    tail = tony_pb2.Tail(question=wanted.question)
    try:
        if wanted.HasField("after"):
            piece = await asyncio.to_thread(output.both.since, wanted.after, wanted.bytes)
            tail.data, tail.end = piece.data, piece.end
        else:
            tail.data = await asyncio.to_thread(output.both.tail, wanted.bytes)
    except OSError as error:
        log.warning("the log cannot be read: %s", error)
        tail.problem = str(error)
    send(tony_pb2.FromExecutor(tail=tail))


async def send_last_words(context: ExecutorContext, send: Callable[[tony_pb2.FromExecutor], None]) -> None:
    """Send the end of the output before the container is killed. Nothing where nothing was printed."""
    try:
        piece = await asyncio.to_thread(context.output.both.since, 0, limits.LAST_WORDS)
    except OSError as error:
        log.warning("the log cannot be read: %s", error)
        return
    if piece.end:
        secrets = context.container.user_secrets.values()
        data = masked_in_place(without_cut_secret(piece.data, secrets), secrets)
        output = kept_form(data, piece.start)
        tail = data[-TAIL_LIMIT:].decode("utf-8", "replace")
        send(tony_pb2.FromExecutor(last_words=tony_pb2.LastWords(output=output, tail=tail)))
