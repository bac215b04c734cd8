"""The end of what the user processes have printed so far, for whoever looks at the job's page."""

from __future__ import annotations

import asyncio
import logging
from typing import Callable

from tony_provider.runtime.executor.output import Output
from tony_provider.runtime.protocol import tony_pb2

log = logging.getLogger(__name__)


async def answer_tail(
    output: Output, wanted: tony_pb2.TailWanted, send: Callable[[tony_pb2.FromExecutor], None]
) -> None:
    tail = tony_pb2.Tail(question=wanted.question)
    try:
        tail.data = await asyncio.to_thread(output.both.tail, wanted.bytes)
    except OSError as error:
        log.warning("the log cannot be read: %s", error)
        tail.problem = str(error)
    send(tony_pb2.FromExecutor(tail=tail))
