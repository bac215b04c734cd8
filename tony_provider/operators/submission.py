"""A task's arguments turned into a job and its identity, and the start of the application for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tony_provider.cluster.chain_choice import Resume
from tony_provider.cluster.chain_origin import ChainOrigin
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.predecessor import Predecessor
from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.tries import TaskTry
from tony_provider.runtime.spec.merge import merge
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.parse import parse_job
from tony_provider.runtime.spec.problems import SpecError
from tony_provider.runtime.spec.reader import suggestion
from tony_provider.runtime.spec.source import load_source
from tony_provider.watching.termination import Kill, clear_up, end_application

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.sdk import DAG
    from airflow.sdk.types import Logger


def job_of(
    job: Mapping[str, Any] | str,
    *,
    default_name: str,
    name: str | None,
    queue: str | None,
    env: Mapping[str, str] | None,
    secrets: Sequence[str],
    queue_timeout: timedelta | float | None,
    overrides: Mapping[str, Any] | str | None,
) -> JobSpec:
    """The job specification with the operator's arguments laid over it, and ``overrides`` over both.

    Raises TonySpecError.
    """
    if env is not None and not isinstance(env, Mapping):
        raise TonySpecError(f"env_vars: must be a mapping of names to values, not {env!r}")
    arguments: dict[str, Any] = {"name": name, "queue": queue, "env": dict(env or {}), "secrets": sorted(secrets)}
    given = {key: value for key, value in arguments.items() if value}
    if queue_timeout is not None:
        # The application master keeps to it too, for jobs that nobody watches, and tells what was missing.
        given["timeouts"] = {"queue": _seconds(queue_timeout)}
    try:
        named = merge({"name": default_name}, load_source(job))
        return parse_job(merge(named, given), overrides=overrides or None)
    except SpecError as error:
        raise TonySpecError(str(error)) from error


def identity_of(hook: TonyHook, context: Context, checkpoint_key: str | None) -> Identity:
    """The identity of the training that this task is, in all its tries."""
    ti = context["ti"]
    return hook.identity(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=map_index(context),
        checkpoint_key=checkpoint_key or None,
    )


def labels_of(context: Context) -> dict[str, str]:
    """The labels that say where a job comes from (dag, run, task, try), for its event log."""
    ti = context["ti"]
    labels = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "try_number": str(ti.try_number)}
    return labels if map_index(context) < 0 else {**labels, "map_index": str(map_index(context))}


def search_path(dag: DAG) -> list[Path]:
    """The directories in which files that the job names are looked for: the DAG's, then those of its templates."""
    further = dag.template_searchpath or []
    return [Path(dag.folder), *map(Path, [further] if isinstance(further, str) else further)]


def map_index(context: Context) -> int:
    """The index of a mapped task instance; -1: the task is not mapped."""
    index = context["ti"].map_index
    return -1 if index is None else index


def _seconds(time_span: timedelta | float) -> float:
    return time_span.total_seconds() if isinstance(time_span, timedelta) else time_span


_KEYS = ["dag_id", "run_id", "task_id", "map_index", "checkpoint_key"]


def resume_of(given: str) -> Resume:
    """The operator's argument ``resume`` as a Resume. Raises TonySpecError."""
    try:
        return Resume(given)
    except ValueError as error:
        raise TonySpecError(f"resume: {given!r} should be one of {', '.join(Resume)}") from error


def origin_of(
    hook: TonyHook,
    context: Context,
    *,
    resume_from: Mapping[str, Any] | str | None,
    warm_start: str | None,
    checkpoint_key: str | None,
) -> ChainOrigin:
    """What a fresh checkpoint chain is to begin with, by the operator's arguments.

    ``checkpoint_key`` is this task's own. Raises TonySpecError.
    """
    if warm_start is not None and not isinstance(warm_start, str):
        raise TonySpecError(f"warm_start: should be the URI of a model's directory, not {warm_start!r}")
    return ChainOrigin(_training(hook, context, resume_from, checkpoint_key), (warm_start or "").strip() or None)


def _training(hook: TonyHook, context: Context, given: Any, checkpoint_key: str | None) -> Identity | str | None:
    if not given:
        return None
    if isinstance(given, str):
        return given.strip() or None
    if not isinstance(given, Mapping):
        raise TonySpecError(
            f"resume_from: should be a mapping with a run_id, or the URI of a checkpoint chain, not {given!r}"
        )
    if unknown := sorted(set(given) - set(_KEYS)):
        hint = suggestion(unknown[0], _KEYS)
        raise TonySpecError(f"resume_from: {unknown[0]!r} is not known{hint}; it may hold {', '.join(_KEYS)}")
    if not (run_id := _text(given, "run_id")):
        return None  # a template that found no run
    ti = context["ti"]
    dag_id, task_id = _text(given, "dag_id") or ti.dag_id, _text(given, "task_id") or ti.task_id
    key, index = _text(given, "checkpoint_key"), _index(given)
    if key is not None and index is not None:
        raise TonySpecError("resume_from: map_index and checkpoint_key are both given; keep one of them")
    if key is None and index is None and (dag_id, task_id) == (ti.dag_id, ti.task_id):
        key, index = checkpoint_key or None, map_index(context)
    return hook.identity(
        dag_id=dag_id,
        run_id=run_id,
        task_id=task_id,
        map_index=-1 if index is None else index,
        checkpoint_key=key,
    )


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise TonySpecError(f"resume_from.{key}: should be text, not {value!r}")
    return value or None


def _index(given: Mapping[str, Any]) -> int | None:
    value = given.get("map_index")
    if value is None or value == "":
        return None
    try:
        return int(value)  # templates give text
    except (TypeError, ValueError) as error:
        raise TonySpecError(f"resume_from.map_index: should be a whole number, not {value!r}") from error


@attrs.frozen
class StartedApplication:
    """The application that a try waits for: one that it has submitted, or found of an earlier try."""

    application_id: str
    attached: bool = False  # an earlier try has started it
    has_ended: bool = False  # and it has succeeded, without Airflow having the result


@attrs.frozen
class ApplicationStarter:
    """Starts a try's application, or attaches to the one of an earlier try. Holds all but the job."""

    hook: TonyHook
    identity: Identity
    this_try: TaskTry
    resume: Resume
    origin: ChainOrigin
    secrets: Mapping[str, str] = attrs.field(repr=False)
    labels: Mapping[str, str]
    search_path: Sequence[Path]
    remember: Callable[[str], None]  # is given the application's id when the try attaches to it
    before_submit: Callable[[str], None]  # the same before it can exist; raises when nobody wants it any more
    instance_exists: Callable[[int], bool]  # another mapped instance of the task, by its index
    log: Logger

    def attach_or_submit(self, job: JobSpec, remembered: str | None) -> StartedApplication:
        """Attach to what an earlier try has left, if there is something to wait for or to return; else submit the job.

        See ``Predecessor`` for what can have been left; ``remembered``: its id, from Airflow's store. Raises as
        ``TonyHook.submit``, StorageError; TonySpecError for an application of another mapped instance.
        """
        before = self.hook.predecessor(self.identity, remembered=remembered)
        if before is not None and (before.is_live or self._is_undelivered(before)):
            self._check_instance(before)
            self.remember(before.application_id)
            if before.is_live:
                self.log.info("Attaching to %s, which an earlier try of this task started", before.application_id)
            else:
                self.log.info(
                    "%s has succeeded for an earlier try of this task, which could not hand the result to Airflow: "
                    "returning it",
                    before.application_id,
                )
            return StartedApplication(before.application_id, attached=True, has_ended=not before.is_live)
        if before is not None:
            self._tidy(before)
        return self.submit(job)

    def end_and_submit(self, job: JobSpec) -> StartedApplication:
        """End whatever runs of this training and submit the job, without a look at what earlier tries have reached.

        Raises as ``TonyHook.submit``, StorageError.
        """
        for application in self.hook.find(self.identity):
            self.log.info("Ending %s, which an earlier try of this task started", application.id)
            kill = Kill("a next try of its task begins anew", self.this_try.name)
            end_application(self.hook, self.identity, application.id, kill)
        return self.submit(job)

    def submit(self, job: JobSpec) -> StartedApplication:
        application_id = self.hook.submit(
            job,
            identity=self.identity,
            secrets=self.secrets,
            labels=self.labels,
            search_path=self.search_path,
            resume=self.resume,
            origin=self.origin,
            before_submit=self.before_submit,
        )
        directory = self.hook.application_dir(self.identity, application_id)
        self.log.info("Submitted %s (%s); its results and logs go to %s", application_id, job.name, directory)
        return StartedApplication(application_id)

    def _check_instance(self, before: Predecessor) -> None:
        """With one key for two, the one's model would be the other's result.

        Where the list has changed, the same training has another index now: only while both are there are they two.
        """
        mine = self.labels.get("map_index")
        if mine is None:
            return
        theirs = self.hook.labels(self.identity, before.application_id).get("map_index", mine)
        if theirs != mine and self.instance_exists(int(theirs)):
            first, second = sorted((theirs, mine), key=int)
            raise TonySpecError(
                f"checkpoint_key: the mapped instances {first} and {second} of this task have the same one, which "
                f"makes them one training, that of {before.application_id}; give each its own"
            )

    def _is_undelivered(self, before: Predecessor) -> bool:
        if not before.has_succeeded:
            return False
        return before.delivered is None or not self.this_try.follows_success(before.delivered)

    def _tidy(self, before: Predecessor) -> None:
        """What it no longer needs, should neither its master nor its try have lived to remove it."""
        self.log.info("The application before: %s", before)
        clear_up(self.hook, self.identity, before.application_id, self.log.warning)
