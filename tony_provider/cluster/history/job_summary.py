"""The summary of one try's application: small enough for Airflow's database, enough for lists and comparisons."""

from __future__ import annotations

from typing import ClassVar

import attrs

from tony_provider.cluster.history.advice import Advice
from tony_provider.runtime.protocol.job_figures import TimeUse, TypeUse
from tony_provider.runtime.protocol.status import FinalStatus

CURVE_POINTS = 200  # of a curve, at most
CURVES = 20  # of a summary, at most


@attrs.frozen(kw_only=True)
class Curve:
    """A metric of the leader over its steps. All lists have the same length, at most CURVE_POINTS."""

    metric: str
    steps: list[int]
    seconds: list[float]  # since the submission
    values: list[float | str]  # "NaN", "Infinity" and "-Infinity" for what is no number


@attrs.frozen(kw_only=True)
class JobSummary:
    """What became of an application that one try of a task has waited for, or waits for. JSON types throughout."""

    WRITER_MAY_BE_NEWER: ClassVar[bool] = True  # see ``codec``

    application_id: str
    application_dir: str  # URI
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1  # the last that has waited for it
    watched: bool = True  # False: its task does not wait for its end
    run_date: str | None = None  # ISO 8601; None: the run is for a partition without a date
    tony_conn_id: str = "tony_default"
    proxy_user: str | None = None
    user: str = ""  # whom it ran as
    queue: str = ""
    name: str = ""
    framework: str = ""
    verdict: FinalStatus | None = None  # None: it runs, as far as this try knew
    reason: str = ""  # of a failure: one line, with the task that failed first
    failure_kind: str | None = None  # a FailureKind
    failed_task: str | None = None  # such as worker:0
    failed_node: str | None = None
    submitted_ms: int = 0  # epoch; so the next
    finished_ms: int | None = None
    times: TimeUse = attrs.field(factory=TimeUse)
    use: list[TypeUse] = attrs.field(factory=list)
    step: int | None = None
    total_steps: int | None = None
    steps_per_second: float | str | None = None  # "NaN" for no number
    restarts: int = 0
    resumed_step: int | None = None
    checkpoint_step: int | None = None
    metrics: dict[str, float | str] = attrs.field(factory=dict)  # the leader's newest; "NaN" for no number
    curves: list[Curve] = attrs.field(factory=list)  # at most CURVES
    warnings: list[str] = attrs.field(factory=list)
    advice: list[Advice] = attrs.field(factory=list)
    fingerprint: dict[str, str] = attrs.field(factory=dict)  # hashes of what was trained: what differs was changed
    links: dict[str, str] = attrs.field(factory=dict)  # addresses by their names
    version: int = 1  # of this form
