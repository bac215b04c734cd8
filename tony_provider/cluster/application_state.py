"""States of an application on a cluster."""

from __future__ import annotations

from enum import StrEnum


class ApplicationState(StrEnum):
    """State of an application, with YARN's names; the local cluster uses the same names."""

    NEW = "NEW"
    NEW_SAVING = "NEW_SAVING"
    SUBMITTED = "SUBMITTED"
    ACCEPTED = "ACCEPTED"  # waits for the application master's container
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"  # the application master reported the outcome, see final_status
    FAILED = "FAILED"  # the application master died or never started
    KILLED = "KILLED"

    @property
    def is_final(self) -> bool:
        return self in (ApplicationState.FINISHED, ApplicationState.FAILED, ApplicationState.KILLED)
