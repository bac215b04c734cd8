"""Who has a place at the web server: many for those who may be answered, and few for everybody else."""

from __future__ import annotations

from typing import Optional, Protocol

import attrs


class Visit(Protocol):
    """A connection that has a place."""

    @property
    def source(self) -> str:
        """The address that it comes from."""

    @property
    def waits(self) -> bool:
        """Whether it keeps us waiting: for the rest of its request, or for its goodbye."""

    def give_up(self) -> None:
        """Close it, whatever it is at."""


@attrs.define(eq=False)
class Slots:
    """A number of places. Where all are taken, whoever has kept us waiting for the longest time leaves for a newcomer.

    So half requests keep nobody out, however many there are: a whole one comes in one go, and is answered.
    """

    most: int
    of_one: int  # most for one address
    _visits: dict[Visit, None] = attrs.field(factory=dict)  # the oldest first

    def admit(self, visit: Visit) -> bool:
        """Give it a place; False: there is none, since all that there are have whole requests."""
        of_one = [each for each in self._visits if each.source == visit.source]
        leaves: Optional[Visit] = None
        if len(of_one) >= self.of_one:
            leaves = next((each for each in of_one if each.waits), None)
        elif len(self._visits) >= self.most:
            leaves = next((each for each in self._visits if each.waits), None)
        else:
            self._visits[visit] = None
            return True
        if leaves is None:
            return False
        self.leave(leaves)
        leaves.give_up()
        self._visits[visit] = None
        return True

    def leave(self, visit: Visit) -> None:
        self._visits.pop(visit, None)
