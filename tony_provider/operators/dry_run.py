"""``dry_run()`` of a training task: its submission as text, with nothing submitted."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import attrs
import yaml

from tony_provider.cluster.chain_choice import Resume
from tony_provider.hooks.metastore import connections_of_database
from tony_provider.operators.job_templates import job_templates, without_literals
from tony_provider.operators.submission import request_of
from tony_provider.operators.tries import TaskRun
from tony_provider.readable_errors import naming_field
from tony_provider.runtime.text import MASK

if TYPE_CHECKING:
    from tony_provider.operators.training_task import TrainingTask

_UNRENDERED = ("{{", "{%")


def print_submission(task: TrainingTask) -> None:
    """See ``TonyTrainOperator.dry_run``."""
    task = _without_templates(task)
    secrets = dict.fromkeys(task.secrets or {}, MASK)
    run = TaskRun(task.dag_id, "dry_run", task.task_id)
    with connections_of_database(), task.hook as hook:
        job = task.parse_job(secrets)
        with task.sent(job) as sent:
            found = hook.preview(request_of(task, run, job, sent, secrets))
    print(yaml.safe_dump(attrs.asdict(found), sort_keys=False, width=120))  # noqa: T201 - its answer


def _without_templates(task: TrainingTask) -> TrainingTask:
    """Return a copy of the task with the job of its file, and with the plain texts of all literals.

    The copy's training begins at step 0 if only a run knows the checkpoint that the training begins with.
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
