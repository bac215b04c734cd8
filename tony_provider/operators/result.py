"""What a training task returns: one documented field per key of the result, each an XCom of its own."""

from __future__ import annotations

from typing import Any

import attrs

from tony_provider.cluster.base import Application
from tony_provider.runtime import contract
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage.uris import join


@attrs.frozen(kw_only=True)
class JobResult:
    """Of ``TonyTrainOperator``. Keys whose value is not known are there with ``None``."""

    application_id: str  # as YARN writes it: application_1700000000000_0001
    application_dir: str  # URI of the application's directory on the store: logs, status, events, model
    logs_dir: str  # URI of the directory with the kept end of each task's output
    model_dir: str | None = None  # URI of what the chief, or rank 0, left in TONY_MODEL_DIR
    returned: Any = None  # what the chief, or rank 0, left in TONY_RESULT_FILE, at most 1 MiB; "NaN" for no number
    lineage: str | None = None  # URI of the directory that this training's checkpoints are in, over all its tries
    resumed_from: str | None = None  # the checkpoint that the tasks went on from at last: "step 120", or "save 7, …"
    resumed_step: int | None = None  # its step; None: nothing says one, or they began at the beginning
    checkpoint: str | None = None  # the newest that was committed to the store: "step 120", or "save 7, 14:03:12 UTC"
    checkpoint_step: int | None = None  # its step; None: nothing says one
    checkpoint_dir: str | None = None  # URI of that checkpoint; None where checkpoint.after_success is "remove"
    tracking_url: str | None = None  # the application's page on the cluster
    queue: str | None = None  # where the cluster put it
    final_status: str | None = None  # SUCCEEDED; None when not waited for
    metrics: dict[str, float | str] = attrs.field(factory=dict)  # newest of the chief, or rank 0; "NaN" for no number
    step: int | None = None  # the last one that the chief, or rank 0, reported
    total_steps: int | None = None  # as the chief, or rank 0, reported last
    steps_per_second: float | None = None  # as measured last
    generation: int | None = None  # how often the tasks were brought together; more than 1 after restarts
    restarts: int | None = None  # of all tasks or some of them, within the application
    duration_s: float | None = None  # seconds, from submission to the end
    warnings: list[str] = attrs.field(factory=list)  # such as a side-car that failed, or a checkpoint that was lost

    @classmethod
    def of(
        cls,
        application_id: str,
        application_dir: str,
        application: Application | None,
        status: JobStatus | None,
        lineage: str | None = None,
        returned: Any = None,
    ) -> JobResult:
        """Of whatever is known: nothing yet just after submission, no ``application`` when the cluster forgot it."""
        known: dict[str, Any] = {}
        if status is not None:
            resumed, newest = status.resumed, status.checkpoint
            known.update(
                model_dir=status.model_dir,
                resumed_from=resumed.label if resumed else None,
                resumed_step=status.resumed_step,
                checkpoint=newest.label if newest else None,
                checkpoint_step=status.checkpoint_step,
                checkpoint_dir=status.checkpoint_dir,
                metrics=to_plain(status.metrics),
                step=status.step,
                total_steps=status.total_steps,
                steps_per_second=to_plain(status.steps_per_second),
                generation=status.generation,
                restarts=status.restarts,
                warnings=status.warnings,
                final_status=status.state.value if status.state.is_final else None,
            )
            if status.started_ms and status.finished_ms:
                known["duration_s"] = (status.finished_ms - status.started_ms) / 1000
        if application is not None:
            known.update(tracking_url=application.tracking_url, queue=application.queue or None)
            if application.is_final and application.final_status is not None:
                known.setdefault("final_status", application.final_status.value)
            if application.started_ms and application.finished_ms:
                known["duration_s"] = (application.finished_ms - application.started_ms) / 1000
        return cls(
            application_id=application_id,
            application_dir=application_dir,
            logs_dir=join(application_dir, contract.LOGS_DIR),
            lineage=lineage,
            returned=returned,
            **known,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return attrs.asdict(self)
