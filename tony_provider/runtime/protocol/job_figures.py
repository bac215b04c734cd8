"""Figures of a whole job: where its time went, and what its tasks asked for and used."""

from __future__ import annotations

from typing import ClassVar, Optional

import attrs


@attrs.frozen(kw_only=True)
class TimeUse:
    """Where an application's time went, in seconds: each moment counts once, but for the last two.

    None: not known, such as the queue's part to a master that was not told when it was submitted.
    """

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    queue: Optional[float] = None  # from the submission until an application master ran
    allocation: float = 0.0  # until the containers of the gang were there; also later ones that were waited for
    localisation: float = 0.0  # until the first user process started: files are copied and unpacked
    start: float = 0.0  # until the first step of the first generation, as far as its reports tell
    training: float = 0.0
    restarts: float = 0.0  # the gang was down, up to its next step; of tasks that start again alone, their part of it
    suspended: float = 0.0  # nothing ran and nothing was asked for: somebody had suspended the job
    end: float = 0.0  # from the verdict until everything was stopped and kept
    checkpoints: float = 0.0  # copying them to the store, in the background: part of the others
    repeated: float = 0.0  # training that was lost to restarts and done again: part of ``training``

    @property
    def waiting(self) -> float:
        """In the queue, and for the containers of the gang."""
        return (self.queue or 0.0) + self.allocation


@attrs.frozen(kw_only=True)
class TypeUse:
    """What the tasks of one type asked for and used, over all their containers."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    type: str
    tasks: int
    container_seconds: float  # that containers were held, of all tasks together
    memory_bytes: int  # asked for, for one container; so the next two
    vcores: int
    gpus: int = 0
    used_seconds: float = 0.0  # of these the user processes ran
    most_rss_bytes: Optional[int] = None  # of any of its tasks, ever
    most_rss_task: Optional[str] = None  # which one that was
    mean_cpu_percent: Optional[float] = None  # while user processes ran, of one task; 100 is one core
    most_cpu_percent: Optional[float] = None  # the highest mean over half a minute, of any of its tasks
    crowded_percent: Optional[float] = None  # of that time the processors of its node were nearly all busy
    mean_gpu_percent: Optional[float] = None  # of one GPU
    most_gpu_bytes: Optional[int] = None  # of one task
