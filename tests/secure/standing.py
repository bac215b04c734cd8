"""The jobs of alice's that several rows have together, so that each need not wait for one of its own."""

from __future__ import annotations

from dataclasses import dataclass

from tests.secure.victim import Victim


@dataclass
class Standing:
    """The first row that wants one starts it; whoever made this lets them end, when the last row is over."""

    running: Victim | None = None  # until it is let go
    ended: Victim | None = None  # SUCCEEDED, with all that it has left on the store

    def close(self) -> None:
        for victim in (self.running, self.ended):
            if victim is not None:
                victim.place.close()
