"""What comes over an executor's stream, held to ``protocol.limits``: refused by its size, cut, and slowed down.

Texts are cleaned of what terminals obey and nothing shows, here and once: then they go to log, history and page.
"""

from __future__ import annotations

import asyncio
import time
from typing import Optional, Union

import attrs
from google.protobuf.message import DecodeError

from tony_provider.runtime.address import HIGHEST_PORT
from tony_provider.runtime.am.allowance import Allowance
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.reserved_keys import RESERVED_KEYS
from tony_provider.runtime.text import one_line, printable
from tony_provider.runtime.varint import EndlessNumber, read_varint

_KINDS = {field.number: field.name for field in tony_pb2.FromExecutor.DESCRIPTOR.fields}
_PASSED_ON = ("tail", "page", "last_words", "tunnel")  # kinds whose bytes nobody here has to understand
_LENGTH_DELIMITED = 2
_LONGEST_HOST = 255


@attrs.frozen
class Refused:
    """What was sent, and is not taken. The message says why."""

    why: str
    size: int  # bytes


@attrs.frozen
class Taken:
    """A message of an executor, as large as it may be."""

    message: tony_pb2.FromExecutor
    kind: str
    size: int  # bytes


Incoming = Union[Taken, Refused]


def parse(data: bytes) -> Incoming:
    """The message in what was sent. Its size is looked at before anything is made of it; never raises."""
    head = _head(data)
    if head is None:
        return Refused("it is no message of this protocol", len(data))
    kind, start, length = head
    if length > limits.largest(kind):
        return Refused(f"a message of the kind {kind} has {length} bytes, more than {limits.largest(kind)}", len(data))
    if start + length != len(data):
        return Refused("a message holds more than one thing", len(data))
    try:
        return Taken(tony_pb2.FromExecutor.FromString(data), kind, len(data))
    except DecodeError:
        return Refused(f"a message of the kind {kind} cannot be read", len(data))


def registration_problem(registration: tony_pb2.Registration) -> str:
    """Why other tasks must not be told of such an executor; empty: they may be."""
    host = registration.host
    if not 0 < len(host) <= _LONGEST_HOST or not host.isascii() or not all(c.isalnum() or c in "._:-%" for c in host):
        return f"no host has the name {host[:_LONGEST_HOST]!a}"
    if len(registration.ports) > limits.MOST_PORTS:
        return f"{len(registration.ports)} ports, more than {limits.MOST_PORTS}"
    for name, port in registration.ports.items():
        if not limits.is_metric_name(name) or not 0 < port <= HIGHEST_PORT:
            return f"{name[: limits.LONGEST_NAME]!a}: {port} is no port"
    if sum(len(held.shards) for held in registration.shards) > limits.MOST_HELD_SHARDS:
        return f"its user process holds more than {limits.MOST_HELD_SHARDS} shards"
    return ""


class Cutter:
    """Cuts messages of one executor to what they may hold, and cleans them. ``cut`` names what was cut so far."""

    def __init__(self) -> None:
        self.cut: set[str] = set()

    def fit(self, taken: Taken) -> None:
        """Cut this message, in place."""
        message = taken.message
        if taken.kind == "registration":
            self._text(message.registration, "node", limits.LONGEST_LABEL)
            self._text(message.registration, "python", limits.LONGEST_LABEL)
        elif taken.kind == "heartbeat":
            self._heartbeat(message.heartbeat)
        elif taken.kind == "exited":
            self._exited(message.exited)
        elif taken.kind == "settled":
            self._text(message.settled, "problem", limits.LONGEST_TEXT)
            self._notices(message.settled)
        elif taken.kind == "restore_failed":
            self._text(message.restore_failed, "reason", limits.LONGEST_TEXT)
            self._text(message.restore_failed, "uri", limits.LONGEST_TEXT)
        elif taken.kind == "checkpoint_state":
            self._text(message.checkpoint_state, "blocker", limits.LONGEST_TEXT)
            self._text(message.checkpoint_state, "base", limits.LONGEST_TEXT)
            self._count(message.checkpoint_state, "entries", limits.MOST_ENTRIES)
        elif taken.kind == "stacks":
            self._stacks(message.stacks)
        elif taken.kind == "exported":
            self._text(message.exported, "uri", limits.LONGEST_TEXT)
            self._text(message.exported, "problem", limits.LONGEST_TEXT)
        elif taken.kind == "shard_request":
            self._text(message.shard_request, "reason", limits.LONGEST_TEXT)
        elif taken.kind == "last_words":
            self._text(message.last_words, "tail", limits.OUTPUT_TAIL)
            if len(message.last_words.output) > limits.LAST_WORDS:
                message.last_words.output = message.last_words.output[-limits.LAST_WORDS :]
                self.cut.add("output")

    def _heartbeat(self, beat: tony_pb2.Heartbeat) -> None:
        self._text(beat, "activity", limits.LONGEST_LABEL)
        self._text(beat, "trouble", limits.LONGEST_TEXT)
        self._text(beat, "output_problem", limits.LONGEST_TEXT)
        self._count(beat, "further", limits.MOST_PROCESSES)
        self._notices(beat)
        self._metrics(beat.progress)
        for process in beat.further:
            self._metrics(process.progress)

    def _exited(self, exited: tony_pb2.ProcessExited) -> None:
        self._text(exited, "output_tail", limits.OUTPUT_TAIL)
        for field in ("error", "not_kept", "output_problem", "model_dir"):
            self._text(exited, field, limits.LONGEST_TEXT)
        self._text(exited, "process", limits.LONGEST_LABEL)
        self._count(exited, "outputs", limits.MOST_OUTPUTS)
        for output in exited.outputs:
            self._text(output, "name", limits.LONGEST_LABEL)
            self._text(output, "part", limits.LONGEST_LABEL)
        self._metrics(exited.progress)

    def _stacks(self, stacks: tony_pb2.Stacks) -> None:
        self._count(stacks, "processes", limits.MOST_STACKS)
        for process in stacks.processes:
            self._text(process, "command", limits.LONGEST_LABEL)
            self._text(process, "process", limits.LONGEST_LABEL)
            self._count(process, "frames", limits.MOST_FRAMES)
            process.frames[:] = [one_line(frame[: limits.LONGEST_LABEL]) for frame in process.frames]

    def _notices(self, message: Union[tony_pb2.Heartbeat, tony_pb2.Settled]) -> None:
        self._count(message, "notices", limits.MOST_NOTICES)
        for index, notice in enumerate(message.notices):
            if len(notice) > limits.LONGEST_LABEL or not notice.isprintable():
                message.notices[index] = one_line(notice[: limits.LONGEST_LABEL])
                self.cut.add("notices")

    def _metrics(self, progress: tony_pb2.Progress) -> None:
        """All of them are made anew only where a name is none, or there are too many."""
        metrics = progress.metrics
        if len(metrics) <= limits.MOST_METRICS and all(map(_is_name, metrics)):
            return
        kept = sorted(name for name in metrics if _is_name(name))[: limits.MOST_METRICS]
        values = {name: metrics[name] for name in kept}
        progress.ClearField("metrics")
        progress.metrics.update(values)
        self.cut.add("metrics")

    def _text(self, message: object, field: str, most: int) -> None:
        text = getattr(message, field)
        if len(text) > most:
            text = text[-most:] if field in ("output_tail", "tail") else text[: most - 1] + "…"
            setattr(message, field, text)
            self.cut.add(field)
        if not text.isprintable():
            setattr(message, field, one_line(text) if most == limits.LONGEST_LABEL else printable(text))

    def _count(self, message: object, field: str, most: int) -> None:
        each = getattr(message, field)
        if len(each) > most:
            del each[most:]
            self.cut.add(field)


class Pace:
    """Back-pressure on one stream: what comes faster than an executor may speak is left unread for a while."""

    def __init__(self) -> None:
        self._messages = Allowance(limits.MESSAGES_A_SECOND, limits.MESSAGES_IN_ONE_GO)
        self._bytes = Allowance(limits.BYTES_A_SECOND, limits.BYTES_IN_ONE_GO)

    async def keep(self, incoming: Incoming) -> None:
        """Wait until the next message may be read after this one."""
        passed_on = isinstance(incoming, Refused) or incoming.kind in _PASSED_ON
        cost = incoming.size if passed_on else incoming.size * limits.COST_OF_UNDERSTANDING
        now = time.monotonic()
        wait = max(self._messages.take(1, now), self._bytes.take(cost, now))
        if wait > 0:
            await asyncio.sleep(wait)


def _is_name(text: str) -> bool:
    """As ``limits.is_metric_name``, and fast for almost all that there are: each heartbeat has them."""
    if text.isprintable():
        return len(text) <= limits.LONGEST_NAME and text not in RESERVED_KEYS
    return limits.is_metric_name(text)


def _head(data: bytes) -> Optional[tuple[str, int, int]]:
    """Of the first field: its name, where its content begins, and how long that is; None: there is none that is known.

    Executors send exactly one.
    """
    tag, at = _varint(data, 0)
    length, start = _varint(data, at)
    kind = _KINDS.get(tag >> 3)
    if kind is None or tag & 7 != _LENGTH_DELIMITED or start == 0:
        return None
    return kind, start, length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends; 0 where it does not."""
    try:
        return read_varint(data, at)
    except (IndexError, EndlessNumber):
        return 0, 0
