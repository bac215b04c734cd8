"""The queue of an input's shards: who has taken which, and which are committed. A pure state machine.

A shard is free, taken, committed or failed. It is taken by one reader at a time; when that ends it is free again. Only
who has it can commit it. A byte for each shard, and a little more for those that are taken.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Optional

import attrs

from tony_provider.runtime.common.bounds import COMMITS_LIMIT, read_json
from tony_provider.runtime.storage import Storage, StorageNotFound, is_temporary, read_whole, uris, write_atomically

MOST_AT_ONCE = 256  # shards that one reader may have taken; so many last commits of it are remembered


class ShardState(IntEnum):
    """What has become of a shard."""

    FREE = 0
    TAKEN = 1
    COMMITTED = 2
    FAILED = 3  # it cannot be read


@attrs.frozen
class ShardReader:
    """One start of a task's user process: it takes shards, and when it ends they are free again."""

    task: str  # such as worker:0
    attempt: int
    start: int


@attrs.define
class _Hand:
    """What one reader has."""

    taken: dict[int, int] = attrs.field(factory=dict)  # shards, and the number of the request that took each
    settled: deque[int] = attrs.field(factory=lambda: deque(maxlen=MOST_AT_ONCE))  # its last commits and failures
    returns: deque[int] = attrs.field(factory=lambda: deque(maxlen=MOST_AT_ONCE))  # its last requests to give back


class ShardQueue:
    """The shards of one input, numbered from 0 on, dealt one by one. Free ones go out in this order."""

    def __init__(self, count: int) -> None:
        self._states = bytearray(count)
        self._fresh = 0  # from here on no shard was ever dealt
        self._returned: list[int] = []  # a heap; may hold what is not free any more
        self._hands: dict[ShardReader, _Hand] = {}
        self.committed = 0
        self.failed: dict[int, str] = {}  # why each cannot be read

    def __len__(self) -> int:
        return len(self._states)

    def state(self, shard: int) -> ShardState:
        return ShardState(self._states[shard])

    @property
    def taken(self) -> int:
        """How many shards somebody has."""
        return sum(len(hand.taken) for hand in self._hands.values())

    @property
    def settled(self) -> int:
        """How many shards are committed, or have failed."""
        return self.committed + len(self.failed)

    @property
    def over(self) -> bool:
        """Whether all shards are."""
        return self.settled == len(self._states)

    @property
    def has_free(self) -> bool:
        """Whether a shard may be free; False: none is."""
        return bool(self._returned) or self._fresh < len(self._states)

    @property
    def readers(self) -> list[ShardReader]:
        """Who has something, or has settled something."""
        return list(self._hands)

    # ---- what readers do ---------------------------------------------------------------------------------------

    def take(self, reader: ShardReader, request: int) -> Optional[int]:
        """The next free shard, from now on taken; the same one for the same request. None when none is free."""
        hand = self._hands.setdefault(reader, _Hand())
        for shard, asked in hand.taken.items():
            if asked == request:
                return shard
        free = self._next_free() if len(hand.taken) < MOST_AT_ONCE else None
        if free is not None:
            self._states[free] = ShardState.TAKEN
            hand.taken[free] = request
        return free

    def commit(self, reader: ShardReader, shard: int) -> bool:
        """Commit a shard that this reader has taken; False when it has not. Again, it is as if it had been once."""
        if self._has_settled(reader, shard, ShardState.COMMITTED):
            return True
        if not self._put_down(reader, shard, ShardState.COMMITTED):
            return False
        self.committed += 1
        self._hands[reader].settled.append(shard)
        return True

    def fail(self, reader: ShardReader, shard: int, reason: str) -> bool:
        """Put a shard aside that this reader cannot read; False when it has not taken it. Nobody gets it again."""
        if self._has_settled(reader, shard, ShardState.FAILED):
            return True
        if not self._put_down(reader, shard, ShardState.FAILED):
            return False
        self.failed[shard] = reason
        self._hands[reader].settled.append(shard)
        return True

    def give_back(self, reader: ShardReader, shard: int, request: int) -> bool:
        """Have a shard that this reader has taken be free again; False when it has not taken it.

        The same request again does nothing: the reader may have taken the shard once more by then.
        """
        hand = self._hands.get(reader)
        if hand is None or request in hand.returns or not self._free(reader, shard):
            return False
        hand.returns.append(request)
        return True

    def ended(self, reader: ShardReader) -> bool:
        """Free whatever this reader has: it will say nothing more. Whether it had anything."""
        hand = self._hands.get(reader)
        if hand is None:
            return False
        returned = [shard for shard in list(hand.taken) if self._free(reader, shard)]
        del self._hands[reader]
        return bool(returned)

    # ---- what a later application master is told ---------------------------------------------------------------

    def was_settled(self, reader: ShardReader, shard: int, failed: Optional[str] = None) -> None:
        """A former application master has committed this shard, or put it aside as ``failed``; the last one counts.

        Raises IndexError for a number that no shard has.
        """
        self._forget(shard)
        self._hands.setdefault(reader, _Hand()).settled.append(shard)
        self._states[shard] = ShardState.COMMITTED if failed is None else ShardState.FAILED
        if failed is None:
            self.committed += 1
        else:
            self.failed[shard] = failed

    def holds(self, reader: ShardReader, shards: Iterable[int]) -> None:
        """A reader says that it has these since the time of a former application master. What is not free it loses."""
        hand = self._hands.setdefault(reader, _Hand())
        for shard in shards:
            if 0 <= shard < len(self._states) and self._states[shard] == ShardState.FREE:
                self._states[shard] = ShardState.TAKEN
                hand.taken[shard] = 0  # no request has this number

    def _forget(self, shard: int) -> None:
        """Whatever became of it: that was written by a master that had been replaced, and nobody has heard of it."""
        if self._states[shard] == ShardState.COMMITTED:
            self.committed -= 1
        elif self._states[shard] == ShardState.FAILED:
            del self.failed[shard]
        else:
            return
        for hand in self._hands.values():
            if shard in hand.settled:
                hand.settled.remove(shard)

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _has_settled(self, reader: ShardReader, shard: int, state: ShardState) -> bool:
        hand = self._hands.get(reader)
        return hand is not None and shard in hand.settled and self._states[shard] == state

    def _put_down(self, reader: ShardReader, shard: int, state: ShardState) -> bool:
        hand = self._hands.get(reader)
        if hand is None or shard not in hand.taken:
            return False
        del hand.taken[shard]
        self._states[shard] = state
        return True

    def _free(self, reader: ShardReader, shard: int) -> bool:
        if not self._put_down(reader, shard, ShardState.FREE):
            return False
        heapq.heappush(self._returned, shard)
        return True

    def _next_free(self) -> Optional[int]:
        for shard in self._candidates():
            if self._states[shard] == ShardState.FREE:
                return shard
        return None

    def _candidates(self) -> Iterator[int]:
        while self._returned:
            yield heapq.heappop(self._returned)
        while self._fresh < len(self._states):
            self._fresh += 1
            yield self._fresh - 1


_FULL = 256 << 10  # bytes of a file
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # to make one takes as long as writing a line


@attrs.frozen
class Settled:
    """A shard that was committed, or put aside because it cannot be read."""

    shard: int
    reader: ShardReader
    time_ms: int  # epoch
    failed: Optional[str] = None  # why it cannot be read; None: it is committed
    outputs: list[str] = attrs.field(factory=list)  # what was made of it, as the program says

    def line(self) -> bytes:
        reader = self.reader
        fields: dict[str, Any] = {"shard": self.shard, "task": reader.task, "attempt": reader.attempt}
        fields |= {"start": reader.start, "time_ms": self.time_ms}
        if self.failed is not None:
            fields["failed"] = self.failed
        if self.outputs:
            fields["outputs"] = self.outputs
        return _ENCODER.encode(fields).encode("utf-8", "replace") + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Settled:
        """Raises ValueError for what ``line`` did not write."""
        fields = read_json(line)
        try:
            reader = ShardReader(fields["task"], fields["attempt"], fields["start"])
            return cls(fields["shard"], reader, fields["time_ms"], fields.get("failed"), fields.get("outputs", []))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a commit: {line[:200]!r}") from error


class CommitLog:
    """What one application master adds to the log in a directory. All methods block."""

    def __init__(self, storage: Storage, directory: str, am_attempt: int) -> None:
        self._storage = storage
        self._directory = directory
        self._am_attempt = am_attempt
        self._number = 1  # of the file that is written
        self._newest = b""  # what is in it

    def add(self, settled: Sequence[Settled]) -> None:
        """Have these on the store. Raises StorageError; then none of them counts, and the same may be added again."""
        content = self._newest + b"".join(each.line() for each in settled)
        name = f"{self._am_attempt:04d}-{self._number:06d}.jsonl"
        write_atomically(self._storage, uris.join(self._directory, name), content)
        self._newest = content
        if len(content) >= _FULL:
            self._number, self._newest = self._number + 1, b""


def read_log(storage: Storage, directory: str) -> Iterator[Settled]:
    """All that is in the log, by application master, oldest first: of a shard that comes again the last counts.

    Blocks. Raises StorageError, ValueError for a line that is none.
    """
    try:
        files = storage.list(directory)
    except StorageNotFound:
        return
    for file in files:
        if not is_temporary(file.name):
            for line in read_whole(storage, file.path, COMMITS_LIMIT).splitlines():
                yield Settled.of_line(line)
