"""A task's user process: one start of it, from the order to the last copy of a checkpoint."""

from __future__ import annotations

from typing import Optional

import attrs

from tony_provider.runtime.am import words
from tony_provider.runtime.am.session.actions import SendRendezvous
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.outputs.output_part import OutputPart
from tony_provider.runtime.protocol.status import TaskProgress


@attrs.frozen
class ProcessEnd:
    """How a user process ended, as its executor saw it."""

    start: int
    exit_code: int = 0  # when no signal ended it
    signal: int = 0  # 0: none
    out_of_memory: bool = False
    stopped: bool = False  # the executor was told to stop it
    output_tail: str = ""  # last lines of its stderr
    error: str = ""  # what the executor itself could not do
    not_kept: str = ""  # it ended well, and why what it left could not be kept
    model_dir: str = ""  # URI; empty: it left none
    progress: Optional[TaskProgress] = None
    output_problem: str = ""  # why lines that it printed are lost
    node_problem: str = ""  # what its node or container lacks
    process: str = ""  # which of several processes it was
    outputs: tuple[OutputPart, ...] = ()  # what it left for outputs of the job, on the store

    @property
    def succeeded(self) -> bool:
        problem = self.error or self.not_kept or self.out_of_memory or self.stopped
        return self.exit_code == 0 and self.signal == 0 and not problem

    @property
    def in_words(self) -> str:
        """What became of the user process, to follow the task's name."""
        return f"{self.process} {self._fate}" if self.process else self._fate

    @property
    def _fate(self) -> str:
        killed = f"was killed by {words.signal_name(self.signal)}" if self.signal else words.exit_code(self.exit_code)
        if self.out_of_memory:
            return f"ran out of memory and {killed}; raise the task type's memory"
        if self.error and self.exit_code == 0 and not self.signal:
            return self.error
        return f"{killed}; {self.error}" if self.error else killed


@attrs.frozen
class ProcessStack:
    """The place where one Python process hangs."""

    pid: int
    command: str  # the beginning of its command line
    process: str  # the user process that it belongs to, if the container runs several
    frames: tuple[str, ...]  # the innermost first, as Python prints them


@attrs.frozen
class Settlement:
    """The last report of an executor about a start of its user process."""

    start: int
    problem: str = ""  # the reason if the newest checkpoint is not stored
    notices: tuple[str, ...] = ()  # as in ``Heartbeat``
    unstored: Optional[int] = None  # number of its files that are not stored; None if unknown


@attrs.define(eq=False)
class ProcessState:
    """Times are the session's clock, in seconds."""

    start: int
    generation: int
    order: Optional[SendRendezvous] = None  # None: a former application master gave it
    resumed: Optional[ResumePoint] = None  # what its directory was restored from, perhaps for a former process
    started_at: Optional[float] = None
    moved_at: Optional[float] = None  # when it was last seen to take a step, or started
    step: Optional[int] = None  # the newest that it reported
    stepped: bool = False  # this process has reported a step, not only its predecessor
    end: Optional[ProcessEnd] = None
    not_copied: str = ""  # once it is settled: why its newest checkpoint is not on the store
    ready: bool = False  # its readiness probe has succeeded
    settled: bool = False  # nothing more comes of it: it has ended, and so have the copies of its checkpoints
    stacks: Optional[tuple[ProcessStack, ...]] = None  # if they were requested, and have come
    stop_by: Optional[float] = None  # it was told to stop, and is to be settled by then

    @property
    def runs(self) -> bool:
        """As far as is known: it was ordered, and did not end."""
        return self.end is None and not self.settled

    @property
    def succeeded(self) -> bool:
        return self.end is not None and self.end.succeeded

    def moved(self, step: int, now: float) -> None:
        """It reported this step."""
        if step != self.step:
            self.step, self.moved_at = step, now
