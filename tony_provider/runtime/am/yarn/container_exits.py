"""What YARN's numbers for the end of a container mean: org.apache.hadoop.yarn.api.records.ContainerExitStatus."""

from __future__ import annotations

from tony_provider.runtime.am.resource_manager import ContainerExit, ExitReason

_REASONS = {
    -1000: ExitReason.NOT_PREPARED,  # INVALID
    -100: ExitReason.LOST,  # ABORTED
    -101: ExitReason.DISKS_FAILED,
    -102: ExitReason.PREEMPTED,
    -103: ExitReason.EXCEEDED_VIRTUAL_MEMORY,  # KILLED_EXCEEDED_VMEM
    -104: ExitReason.EXCEEDED_MEMORY,  # KILLED_EXCEEDED_PMEM
    -105: ExitReason.GIVEN_BACK,  # KILLED_BY_APPMASTER
    -106: ExitReason.KILLED_BY_CLUSTER,  # KILLED_BY_RESOURCEMANAGER
    -107: ExitReason.APPLICATION_ENDED,  # KILLED_AFTER_APP_COMPLETION
    -108: ExitReason.MADE_ROOM,  # KILLED_BY_CONTAINER_SCHEDULER
    -109: ExitReason.EXCESS_LOGS,  # KILLED_FOR_EXCESS_LOGS
}


def from_status(status: int) -> ContainerExit:
    """From 0 on it is the exit code of the container's program."""
    reason = ExitReason.EXITED if status >= 0 else _REASONS.get(status, ExitReason.OTHER)
    return ContainerExit(reason, status)
