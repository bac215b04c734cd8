"""Failures of processes that resumed from a checkpoint, and the checkpoints that became suspect by them."""

from __future__ import annotations

from collections import Counter
from posixpath import basename

import attrs

_MOST_FAILURES = 20  # of one checkpoint that are kept


@attrs.frozen
class FailedResume:
    """A failure of a process that resumed from a checkpoint, before the process reported a step or saved."""

    kind: str  # the same text for the same failure
    message: str  # one line for people
    application_id: str
    time_ms: int  # epoch


@attrs.frozen
class FailedResumes:
    """The failed resumes of a chain, by the name of the checkpoint's directory.

    A checkpoint is suspect if processes that resumed from it failed twice in the same way, and none reported a step in
    between.
    """

    by_checkpoint: dict[str, list[FailedResume]] = attrs.field(factory=dict)

    def suspicion(self, uri: str) -> str:
        """Return the reason why a checkpoint is suspect, or an empty string if it is not."""
        failures = self.by_checkpoint.get(basename(uri), [])
        times = Counter(each.kind for each in failures)
        for each in reversed(failures):
            if times[each.kind] > 1:
                return (
                    f"processes that resumed from it failed {times[each.kind]} times in the same way, before they "
                    f"reported a step or saved: {each.message}"
                )
        return ""

    def added(self, uri: str, failure: FailedResume) -> FailedResumes:
        """Return these failures and one more."""
        name = basename(uri)
        failures = [*self.by_checkpoint.get(name, []), failure][-_MOST_FAILURES:]
        return FailedResumes({**self.by_checkpoint, name: failures})

    def without(self, uri: str) -> FailedResumes:
        """Return these failures without those of one checkpoint."""
        name = basename(uri)
        return FailedResumes({each: failures for each, failures in self.by_checkpoint.items() if each != name})
