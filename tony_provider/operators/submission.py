"""Build the submission of a training from the operator's arguments.

Renders secrets, merges the layers of the job, and resolves the origin of its checkpoints.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import yaml
from airflow.sdk.log import mask_secret

from tony_provider.arguments import expect_keys, naming_field, text_of
from tony_provider.cluster.settings import Presets
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.training.identity import Identity
from tony_provider.cluster.training.plan import ChainOrigin, Resume
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.connection import connections_of_database, without_masking_warnings
from tony_provider.job_files.parameters import split_parameters
from tony_provider.operators.job_templates import job_templates, without_literals
from tony_provider.operators.try_state import TaskInstanceInfo
from tony_provider.runtime.common.text import MASK, SHORTEST_SECRET
from tony_provider.runtime.jobspec.model import TENSORBOARD, JobSpec
from tony_provider.runtime.jobspec.problems import SpecError, shown
from tony_provider.runtime.parsing.parse import DEFAULT, Layer, Layers, check_overrides, load_source, merge, parse_job

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import DAG, Context

    from tony_provider.operators.tony import TonyTrainOperator


JOB, OVERRIDES = "the job", "overrides"  # names of layers of a job, also for messages


@attrs.frozen
class ParsedJob:
    """A job with all arguments merged over it, and the layers that it consists of."""

    specification: JobSpec
    layers: Layers


def render_secrets(task: TonyTrainOperator, context: Context) -> dict[str, str]:
    """Return the values of the secrets by name, and mask them in this process's log.

    Call this in each process of the Airflow task, because the masking applies to one process. Only texts of the DAG's
    author are rendered as templates; values that another task returned for a mapped task are used unchanged. Raises
    TonySpecError.
    """
    given = task.secrets or {}
    if not isinstance(given, Mapping):
        raise TonySpecError(f"secrets: must be a mapping of names to values, not {type(given).__name__}")
    with naming_field("secrets"):
        rendered: dict[str, str] = dict(given) if task.has_secret_values else task.render_texts(given, context)
    for name, value in rendered.items():
        if not isinstance(value, str):
            raise TonySpecError(f"secrets.{name}: must be text, not {type(value).__name__}")
        with without_masking_warnings():
            mask_secret(value)
        if 0 < len(value) < SHORTEST_SECRET:
            task.log.warning("secrets.%s is not masked in logs: it has fewer than %d characters", name, SHORTEST_SECRET)
    return rendered


def layers_of(
    job: Mapping[str, Any] | str,
    *,
    default_name: str,
    name: str | None,
    queue: str | None,
    env: Mapping[str, str] | None,
    secrets: Sequence[str],
    queue_timeout: timedelta | float | None,
    overrides: Mapping[str, Any] | str | None,
    allowed_overrides: Sequence[str],
    presets: Callable[[], Presets],
) -> Layers:
    """Return the layers of a job: preset, job, operator's arguments and ``overrides``. A later layer takes precedence.

    ``allowed_overrides``: see ``check_overrides``. ``presets`` returns the connection's presets. It is called only if
    the job names a preset. Raises TonySpecError.
    """
    if env is not None and not isinstance(env, Mapping):
        raise TonySpecError(f"env_vars: must be a mapping of names to values, not {shown(env)}")
    arguments: dict[str, Any] = {"name": name, "queue": queue, "env": dict(env or {}), "secrets": sorted(secrets)}
    given = {key: value for key, value in arguments.items() if value}
    if queue_timeout is not None:
        # The application master enforces this timeout even if no Airflow task watches the job, and reports the missing
        # containers.
        given["timeouts"] = {"queue": _seconds(queue_timeout)}
    try:
        over = load_source(overrides, OVERRIDES) if overrides else {}
        above = [Layer(JOB, job_alone(job)), Layer("arguments", given)]
        preset = (over if "preset" in over else Layers(above).merged()).get("preset")
        below = [Layer(DEFAULT, {"name": default_name}), *([presets().layer(preset)] if preset else [])]
        layers = Layers([*below, *above])
        check_overrides(over, layers.merged(), allowed_overrides)
        return layers.over(over, OVERRIDES)
    except SpecError as error:
        raise TonySpecError(str(error)) from error


def job_alone(job: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Return the job without its file's parameter definitions, which the DAG's params replace. Raises SpecError."""
    return split_parameters(load_source(job))[1]


def job_of(layers: Layers, completed: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}) -> JobSpec:
    """Return the job of merged layers, with the result of ``completed`` merged over it. Raises TonySpecError."""
    try:
        whole = layers.merged()
        return parse_job(merge(whole, completed(whole)))
    except SpecError as error:
        raise TonySpecError(str(error)) from error


def check_shown(wanted: Sequence[str], job: JobSpec) -> None:
    """Check that the job has the tasks ``wanted``, whose output the task's log will show. Raises TonySpecError."""
    counts = {task_type: task.instances for task_type, task in job.tasks.items()}
    if job.tensorboard is not None:
        counts[TENSORBOARD] = 1
    for name in wanted:
        task_type, _, index = name.partition(":")
        if int(index) >= counts.get(task_type, 0):
            last = [f"{each}:0 to {each}:{count - 1}" if count > 1 else f"{each}:0" for each, count in counts.items()]
            raise TonySpecError(f"show_output: the job has no task {name}; its tasks are {', '.join(last)}")


def request_of(
    task: TonyTrainOperator, run: TaskInstanceInfo, job: ParsedJob, sent: JobSpec, secrets: Mapping[str, str]
) -> SubmissionRequest:
    """Return the submission request of ``task`` in ``run``, from the task's rendered arguments.

    ``job`` is the job before the operator adds files to it, and ``sent`` is the job with them. Raises TonySpecError.
    """
    more = {"checkpoint_key": task.checkpoint_key, "bundle_version": run.bundle_version}
    return SubmissionRequest(
        sent,
        run.identity(task.hook, task.checkpoint_key),
        secrets,
        {**run.labels, **{name: value for name, value in more.items() if value}},
        search_path(task.dag),
        resume_of(task.resume),
        _origin(task, run),
        job.layers.of(JOB),
        job.layers.of(OVERRIDES),
        watched=task.wait_for_completion,
        made=[Path(each.source) for each in sent.files if each not in job.specification.files],
        file_roots=[bundle_folder(task.dag)],
    )


def search_path(dag: DAG) -> list[Path]:
    """Return where to search the job's local files: the DAG file's directory, then the DAG's template directories."""
    further = dag.template_searchpath or []
    return [Path(dag.folder), *map(Path, [further] if isinstance(further, str) else further)]


def bundle_folder(dag: DAG) -> Path:
    """Return the root of the bundle that contains the DAG's file, or the file's directory if the bundle is unknown.

    The root of a bundle is often a symbolic link to the bundle's newest version.
    """
    file, relative = Path(dag.fileloc), Path(dag.relative_fileloc or "")
    depth = len(relative.parts)
    is_known = depth > 0 and not relative.is_absolute() and file.parts[-depth:] == relative.parts
    return file.parents[depth - 1] if is_known else Path(dag.folder)


def _seconds(time_span: timedelta | float) -> float:
    return time_span.total_seconds() if isinstance(time_span, timedelta) else time_span


_KEYS = ["dag_id", "run_id", "task_id", "map_index", "checkpoint_key", "snapshot"]


def resume_of(given: str) -> Resume:
    """Return the operator's argument ``resume`` as a Resume. Raises TonySpecError."""
    try:
        return Resume(given)
    except ValueError as error:
        raise TonySpecError(f"resume: {shown(given)} should be one of {', '.join(Resume)}") from error


def _origin(task: TonyTrainOperator, run: TaskInstanceInfo) -> ChainOrigin:
    """Return the origin of a new checkpoint chain, from the operator's arguments. Raises TonySpecError."""
    resume_from, warm_start = task.resume_from, task.warm_start
    if warm_start is not None and not isinstance(warm_start, str):
        raise TonySpecError(f"warm_start: should be the URI of a model's directory, not {shown(warm_start)}")
    training = _training(task, run, resume_from)
    snapshot = _number(resume_from, "snapshot") if isinstance(resume_from, Mapping) and training else None
    return ChainOrigin(training, snapshot, (warm_start or "").strip() or None)


def _training(task: TonyTrainOperator, run: TaskInstanceInfo, given: Any) -> Identity | str | None:
    if not given:
        return None
    if isinstance(given, str):
        return given.strip() or None
    if not isinstance(given, Mapping):
        raise TonySpecError(
            "resume_from: should be a mapping with a run_id, or the URI of a checkpoint chain or checkpoint, not "
            f"{shown(given)}"
        )
    expect_keys("resume_from", given, _KEYS)
    run_id, dag_id, task_id, key = (
        text_of("resume_from", given, each) for each in ("run_id", "dag_id", "task_id", "checkpoint_key")
    )
    if run_id is None:
        return None  # the template for ``run_id`` found no run
    dag_id, task_id = dag_id or run.dag_id, task_id or run.task_id
    index = _number(given, "map_index")
    if key is not None and index is not None:
        raise TonySpecError("resume_from: map_index and checkpoint_key are both given; keep one of them")
    if key is None and index is None and (dag_id, task_id) == (run.dag_id, run.task_id):
        key, index = task.checkpoint_key or None, run.map_index
    return task.hook.identity(
        dag_id=dag_id,
        run_id=run_id,
        task_id=task_id,
        map_index=-1 if index is None else index,
        checkpoint_key=key,
    )


def _number(given: Mapping[str, Any], key: str) -> int | None:
    value = given.get(key)
    if value is None or value == "":
        return None
    try:
        return int(value)  # a rendered template is text
    except (TypeError, ValueError) as error:
        raise TonySpecError(f"resume_from.{key}: should be a whole number, not {shown(value)}") from error


_UNRENDERED = ("{{", "{%")


def print_submission(task: TonyTrainOperator) -> None:
    """Print the submission of a task, see ``TonyTrainOperator.dry_run``."""
    task = _without_templates(task)
    secrets = dict.fromkeys(task.secrets or {}, MASK)
    run = TaskInstanceInfo(task.dag_id, "dry_run", task.task_id)
    with connections_of_database(), task.hook as hook:
        job = task.parse_job(secrets)
        with task.sent(job.specification) as sent:
            found = hook.preview(request_of(task, run, job, sent, secrets))
    print(yaml.safe_dump(attrs.asdict(found), sort_keys=False, width=120))  # noqa: T201 - output of the dry run


def _without_templates(task: TonyTrainOperator) -> TonyTrainOperator:
    """Return a copy of the task, with the job read from its file, and each ``literal`` replaced by its text.

    If ``resume_from`` or ``warm_start`` is a template that only a run can render, the copy's training begins at step 0.
    """
    task = copy.copy(task)
    with naming_field("job"):
        task.job = job_templates(task.job, task.get_template_env())[0]
    for name in task.template_fields:
        setattr(task, name, without_literals(getattr(task, name)))
    for name, instead in (("resume", Resume.AUTO.value), ("resume_from", None), ("warm_start", None)):
        if any(mark in str(getattr(task, name)) for mark in _UNRENDERED):
            setattr(task, name, instead)
    return task
