"""Common checkpoints of ``checkpoint.mirror: all``: which one every rank copies, and the parts that have come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Callable, Optional

import attrs

from tony_provider.runtime.am import wire_messages
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.am.shards import Shard, ShardError
from tony_provider.runtime.checkpoint.checkpoint_model import directory_name
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import uris

Send = Callable[[str, tony_pb2.ToExecutor], None]  # to a task


@attrs.frozen
class _Held:
    """What one rank has."""

    attempt: int
    generation: int
    start: int
    steps: frozenset[int]
    last: bool
    save: int


@attrs.define
class _Named:
    step: int
    save: int
    uri: str
    parts: dict[int, Shard] = attrs.field(factory=dict)  # by rank


class CommonCheckpoints:
    """Chooses the checkpoint that all ranks copy: the newest step that all of them hold, one at a time.

    No rank chooses for itself. ``abandoned`` hears of a checkpoint that will not become whole, and why. What follows
    from what is told, ``look`` does, once for the messages of thousands of ranks.
    """

    def __init__(self, session: Session, send: Send, abandoned: Callable[[str, str], None]) -> None:
        self._session = session
        self._send = send
        self._abandoned = abandoned
        self._held: dict[str, _Held] = {}  # by task
        self._named: Optional[_Named] = None
        self._news = False  # since the last look

    def begin(self, reason: str) -> None:
        """Begin another generation: what was named for the former one will not become whole."""
        named, self._named, self._held = self._named, None, {}
        if named is not None:
            self._abandoned(named.uri, reason)

    def held(self, task: str, attempt: int, message: tony_pb2.CheckpointsHeld) -> None:
        """Record which checkpoints a rank says it has.

        It may say so again, since it does not know what was named meanwhile.
        """
        steps = frozenset(message.steps)
        held = self._held[task] = _Held(attempt, message.generation, message.start, steps, message.last, message.save)
        self._news = True
        if self._named and self._named.step in steps:
            self._tell(task, held, self._named)

    def add(self, shard: Shard) -> Optional[list[Shard]]:
        """Add an uploaded part; returns all parts of its checkpoint, by rank, when it was the last one, else None.

        A part of one that nobody has named here is of one that a former application master has. Raises ShardError.
        """
        named = self._named
        if named is None:
            named = self._named = _Named(shard.step or 0, shard.save, shard.checkpoint)
        if shard.checkpoint != named.uri:
            raise ShardError(f"it is the checkpoint of step {named.step} that is copied now")
        named.parts[shard.rank] = shard
        if not set(dict(self._session.mirror_ranks()).values()) <= set(named.parts):
            return None
        return [named.parts[rank] for rank in sorted(named.parts)]

    def ended(self, uri: str, *, committed: bool) -> None:
        """Record that a whole checkpoint was committed, or refused."""
        named = self._named
        if named is None or named.uri != uri:
            return
        self._named, self._news = None, True
        self._forget(lambda step: step <= named.step if committed else step == named.step)

    def look(self, checkpoints: str) -> None:
        """Name a checkpoint, give one up, or tell those who wait that nothing more is wanted.

        ``checkpoints``: URI of the directory that they go to.
        """
        if not (self._news or self._named or any(held.last for held in self._held.values())):
            return
        self._news = False
        ranks = dict(self._session.mirror_ranks())
        self._held = {task: held for task, held in self._held.items() if task in ranks and self._may_copy(task, held)}
        if self._named is not None and not self._give_up(self._named, ranks):
            return
        here = [self._held.get(task) for task in ranks]
        common = frozenset.intersection(*(held.steps for held in here if held)) if here and all(here) else frozenset()
        is_hopeless = any(not held and not self._session.still_copies(task) for task, held in zip(ranks, here))
        if common:
            self._name(max(common), checkpoints)
        elif is_hopeless or all(held and held.last for held in here):
            self._let_go()

    def _give_up(self, named: _Named, ranks: Mapping[str, int]) -> bool:
        """Whether it is given up: a rank whose part is missing does not have it, or is gone."""
        for task, rank in ranks.items():
            held = self._held.get(task)
            lacks = named.step not in held.steps if held else not self._session.still_copies(task)
            if rank not in named.parts and lacks:
                self._named = None
                self._forget(lambda step: step == named.step)
                self._abandoned(named.uri, f"{task} does not have the checkpoint of step {named.step} any more")
                return True
        return False

    def _name(self, step: int, checkpoints: str) -> None:
        save = max(held.save for held in self._held.values()) + 1
        self._named = _Named(step, save, uris.join(checkpoints, directory_name(save, step)))
        for task, held in self._held.items():
            self._tell(task, held, self._named)

    def _tell(self, task: str, held: _Held, named: _Named) -> None:
        copy = wire_messages.copy_checkpoint(held.generation, held.start, named.step, named.save, named.uri)
        self._send(task, copy)

    def _let_go(self) -> None:
        """Of those who wait for a word, since their processes have ended."""
        waiting = {task: held for task, held in self._held.items() if held.last}
        for task, held in waiting.items():
            self._send(task, wire_messages.no_more_copies(held.generation, held.start))
            del self._held[task]

    def _may_copy(self, task: str, held: _Held) -> bool:
        return self._session.commit_refusal(task, held.attempt, held.generation, held.start) is None

    def _forget(self, which: Callable[[int], bool]) -> None:
        """Until they are told again."""
        for task, held in self._held.items():
            self._held[task] = attrs.evolve(held, steps=frozenset(step for step in held.steps if not which(step)))
