"""What travels of a job that a deferred task waits for: into its trigger, into the note for later tries, and back."""

from __future__ import annotations

import attrs

from tony_provider.cluster.identity import Identity
from tony_provider.watching.open_mlflow_run import OpenMlflowRun
from tony_provider.watching.output_follower import OutputPosition
from tony_provider.watching.shown_output import OutputWish
from tony_provider.watching.watch_result import Reason

VERSION = 1  # of what is defined here


@attrs.frozen
class DeferredJob:
    """A job that is waited for in a triggerer, which may know the task by nothing else."""

    tony_conn_id: str
    proxy_user: str | None
    slug: str  # of the training's identity
    digest: str
    application_id: str
    kill: bool  # whether a user's action on the task ends the application
    output: OutputWish | None = None  # whose output is shown in the task's log; None: nobody's
    mlflow: OpenMlflowRun | None = None  # what is closed where a user's action ends the application

    @property
    def identity(self) -> Identity:
        return Identity(self.slug, self.digest)


@attrs.frozen
class WatchEvent:
    """What the trigger tells the task at last: one of ``reason`` and ``error``."""

    job: DeferredJob
    reason: Reason | None = None  # why there is nothing more to wait for
    last_message: str = ""  # the job's own last word on what it was doing or waiting for
    error: str | None = None  # why it could not be watched any more
    told: dict[str, OutputPosition] = attrs.field(factory=dict)  # by task, up to where its output is in the log
    version: int = VERSION
