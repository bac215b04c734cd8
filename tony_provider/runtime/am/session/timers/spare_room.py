"""What the queue has to spare: taken by types with ``grow: spare`` once it has been there for long enough.

Each growth costs a start of the gang. So room must be found, and found again, in a time without a change of the job;
what is taken is the least that was found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Optional

from tony_provider.runtime.am.resource_manager import Room
from tony_provider.runtime.am.session.actions import LookForRoom
from tony_provider.runtime.am.session.containers.container_sizes import ContainerSizes
from tony_provider.runtime.am.session.restarts.restart_groups import RestartGroups
from tony_provider.runtime.am.session.restarts.restarts import Restarts
from tony_provider.runtime.am.session.state.session_state import SessionState
from tony_provider.runtime.am.session.state.task import Task
from tony_provider.runtime.am.session.suspension import Suspension
from tony_provider.runtime.am.session.type_sizes import TypeSizes
from tony_provider.runtime.protocol.status import JobState, TaskState
from tony_provider.runtime.quantities import count, span

_LOOKS = 2  # for each timeouts.spare: one that finds room, and one that still does
_MOST_DOUBLINGS = 5  # of the time until the next try, after tries in vain


class SpareRoom:
    """The part of the session that has a job take what its queue has to spare, and ask for no more than it gets.

    Times are the session's, in seconds.
    """

    def __init__(
        self,
        state: SessionState,
        sizes: TypeSizes,
        container_sizes: ContainerSizes,
        groups: RestartGroups,
        restarts: Restarts,
        suspension: Suspension,
    ) -> None:
        self._state = state
        self._sizes = sizes
        self._container_sizes = container_sizes
        self._groups = groups
        self._restarts = restarts
        self._suspension = suspension
        self._spare = state.job.timeouts.spare
        self._calm_since: Optional[float] = None
        self._looks = itertools.count(1)
        self._looking: Optional[tuple[int, str]] = None  # for an answer to this look, for this type
        self._look_at = 0.0  # the next time
        self._found: Optional[tuple[str, float, int]] = None  # for which type, since when, for how many at least
        self._passed_over: set[str] = set()  # types that there was no room for, when it was looked for last
        self._give_up_at: dict[str, float] = {}  # by type that grows by the job's own policy
        self._in_vain = 0  # tries in a row
        self._not_before = 0.0

    def heard(self, room: Room, now: float) -> None:
        """Take in for how many more there was room."""
        if self._looking is None or self._looking[0] != room.key:
            return
        (_, name), self._looking = self._looking, None
        self._look_at = now + self._spare / _LOOKS
        if not room.containers:
            self._found = None
            self._passed_over.add(name)
        elif self._found and self._found[0] == name:
            self._found = name, self._found[1], min(self._found[2], room.containers)
        else:
            self._found = name, now, room.containers

    def disturbed(self) -> None:
        """Record that the cluster wants something back: room must have been there for as long again."""
        self._calm_since = self._looking = self._found = None
        self._passed_over.clear()

    def tick(self, now: float) -> None:
        """Take the next step, where there is one."""
        if not self._sizes.sparing:
            return
        self._look_at_growth(now)
        if not self._is_calm:
            self.disturbed()
            return
        if self._calm_since is None:
            self._calm_since = self._look_at = now
        if self._found and self._found[0] not in self._lacking():
            self._found = None  # somebody has asked for no more than there are
        if self._looking is not None:
            return
        if self._found and now >= max(self._found[1] + self._spare, self._not_before):
            self._take(self._found[0], self._found[2])
        elif now >= self._look_at:
            self._look()

    # ---- taking ------------------------------------------------------------------------------------------------

    def _lacking(self) -> list[str]:
        """The types that could have more, in the order of the specification."""
        return [name for name in self._sizes.sparing if self._sizes.number(name) < self._sizes.most(name)]

    def _look(self) -> None:
        """For the first type that could have more, and for the next one where that has found no room."""
        lacking = self._lacking()
        if self._passed_over.issuperset(lacking):
            self._passed_over.clear()
        name = next((name for name in lacking if name not in self._passed_over), None)
        if name is not None:
            key = next(self._looks)
            self._looking = key, name
            number = self._sizes.number(name)
            # No more than it has: what is looked for is kept from others for a moment.
            more = min(self._sizes.most(name) - number, max(number, 1))
            self._state.emit(LookForRoom(self._container_sizes.request(name, key), more))

    def _take(self, name: str, least: int) -> None:
        number = min(self._sizes.number(name) + least, self._sizes.most(name))
        self._sizes.want({name: number}, f"the queue has had room to spare for {span(self._spare)}", by_policy=True)

    @property
    def _is_calm(self) -> bool:
        """Whether all that there is to be is at work, and nothing is about to change."""
        if self._state.phase is not JobState.RUNNING or self._suspension.reason is not None:
            return False
        if self._sizes.wanted or self._groups.gang.restart or self._restarts.undecided:
            return False
        return all(task.state is TaskState.RUNNING for task in self._groups.gang.members if not task.vacant)

    # ---- what is not to be had ---------------------------------------------------------------------------------

    def _look_at_growth(self, now: float) -> None:
        """Ask no longer for what nobody gives: the room that was found is gone."""
        growing = {name: missing for name in self._sizes.by_policy if (missing := self._missing(name))}
        for name in list(self._give_up_at):
            if name not in growing:
                del self._give_up_at[name]
                self._in_vain = 0
        for name, missing in growing.items():
            give_up_at = self._give_up_at.setdefault(name, now + self._state.job.timeouts.replacement)
            if now >= give_up_at and self._state.phase is JobState.RUNNING:
                del self._give_up_at[name]
                self._give_up(name, len(missing), now)

    def _missing(self, name: str) -> list[Task]:
        """Those that are waited for; not such as are too many since the cluster wants others back."""
        leaving = self._sizes.excess(name)
        asked_for = [task for task in self._sizes.there(name) if task.absent and task.state is TaskState.REQUESTED]
        return [task for task in asked_for if task not in leaving]

    def _give_up(self, name: str, missing: int, now: float) -> None:
        wait = self._spare * 2 ** min(self._in_vain, _MOST_DOUBLINGS)
        self._in_vain += 1
        self._not_before = now + wait
        limit = self._state.job.timeouts.replacement
        what = f"{count(missing, 'container')} not given within {limit:g} s (timeouts.replacement)"
        reason = f"{what}; not asked for again for {span(wait)}"
        self._sizes.want({name: self._sizes.number(name) - missing}, reason, by_policy=True)

    # ---- in words ----------------------------------------------------------------------------------------------

    def describe(self) -> Iterator[str]:
        """What the job would take."""
        for name in self._lacking():
            if name not in self._sizes.wanted and not self._groups.gang_has_succeeded:
                yield f"up to {count(self._sizes.most(name), name)} when the queue has room to spare"
