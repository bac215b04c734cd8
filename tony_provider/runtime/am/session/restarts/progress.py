"""Progress of a restart group, which makes its former restarts and failures obsolete."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Optional

import attrs

LONGEST_START = 60.0  # seconds: a younger process may have saved its arguments, or what it was given to begin with


@attrs.frozen
class CommittedSave:
    """Facts about a committed checkpoint that show whether its tasks have made progress."""

    tasks: Collection[str]
    content_step: Optional[int]  # in its files, not only in their names
    is_new: bool  # it has files of a content that the checkpoint before does not have
    process_seconds: float  # from the start of the processes until they saved


@attrs.define
class GroupProgress:
    """The highest steps of a restart group so far, across all starts.

    Reports and files may count different things, such as steps and epochs, so they have a highest step each.
    """

    reported: int = 0
    saved: int = 0

    def has_reported(self, step: int) -> bool:
        """Note a reported step. Return whether it is progress."""
        before, self.reported = self.reported, max(self.reported, step)
        return self.reported > before

    def has_saved(self, save: CommittedSave) -> bool:
        """Note a committed checkpoint. Return whether it is progress: a number in a name never is."""
        if save.content_step is None:
            return save.is_new and save.process_seconds >= LONGEST_START
        before, self.saved = self.saved, max(self.saved, save.content_step)
        return self.saved > before

    @property
    def plain(self) -> dict[str, Any]:
        """Its fields, for the event log."""
        return attrs.asdict(self)
