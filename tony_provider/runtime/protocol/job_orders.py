"""Orders of users to a running job: what each order does, the command that sends it, and what the answer means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from tony_provider.runtime.common.quantities import count, span
from tony_provider.runtime.protocol.status import JobState


@attrs.frozen
class JobOrder:
    """An order that a page offers."""

    name: str  # ``PUT control/NAME`` of the application master
    title: str
    effect: str  # one or two sentences: what will happen
    command: str  # command of ``airflow tony``; ``{}`` stands for the application ID, and then for the numbers of tasks
    states: tuple[JobState, ...]  # states of a job in which the order is useful


STOP = "stop"
RESIZE = "resize"
_BEFORE_END = (JobState.WAITING, JobState.STARTING, JobState.RUNNING, JobState.RESTARTING)
_RUNNING = (JobState.RUNNING,)

JOB_ORDERS = (
    JobOrder(
        "checkpoint",
        "Save a checkpoint",
        "The program receives a request to save a checkpoint, and continues. Programs that do not check for requests "
        "save none.",
        "save {}",
        _RUNNING,
    ),
    JobOrder(
        "export",
        "Export the model",
        "The program of the leading task receives a request to export its model to the store, and continues. Programs "
        "that do not check for requests export none.",
        "export {}",
        _RUNNING,
    ),
    JobOrder(
        "suspend",
        "Suspend",
        "Running programs save a checkpoint. The job then stops all tasks and releases their containers. The "
        "application master keeps its container, and the Airflow task waits until the job is resumed.",
        "suspend {}",
        _BEFORE_END,
    ),
    JobOrder(
        "resume",
        "Resume",
        "The job requests its containers again, and resumes from its newest checkpoint.",
        "resume {}",
        (JobState.SUSPENDED,),
    ),
    JobOrder(
        RESIZE,
        "Resize",
        "The job requests or releases containers, saves a checkpoint, and continues with the new number of tasks.",
        "resize {} {}",
        (*_BEFORE_END, JobState.SUSPENDED),
    ),
    JobOrder(
        STOP,
        "Stop",
        "All tasks receive SIGTERM, and after the grace period SIGKILL. The last checkpoints and logs are stored, and "
        "the job ends with the state KILLED.",
        "kill {}",
        (*_BEFORE_END, JobState.SUSPENDED, JobState.RECOVERING, JobState.FINISHING),
    ),
)


def describe_answer(order: str, job: str, answer: Mapping[str, Any], counts: Mapping[str, int]) -> Iterator[str]:
    """Yield lines on what happens after an order, by the application master's answer.

    ``job`` names the job in the lines. ``counts`` are the new numbers of tasks of a resize.
    """
    state = answer.get("state")
    if order == STOP:
        yield f"{job} ends within {span(answer['ends_within'])}"
    elif order == "suspend" and state == JobState.SUSPENDED:
        yield f"{job} is suspended already"
    elif order == "suspend":
        yield f"{job} saves a checkpoint, and releases its containers within {span(answer['suspended_within'])}"
        yield f"`airflow tony resume {job}` resumes the job"
    elif order == "resume" and state == JobState.SUSPENDED:
        yield f"{job} requests its containers, and resumes from its newest checkpoint"
    elif order == "resume":
        yield f"{job} continues; it was not suspended"
    elif order == RESIZE:
        for task_type, number in counts.items():
            yield f"{job} {_resized(task_type, number, answer['before'][task_type], state)}"
    else:
        yield f"Requested {'an export of the model' if order == 'export' else 'a checkpoint'} of {job}"
        newest = {"checkpoint": answer.get("newest")}
        if order == "export":
            newest = {"export": answer.get("newest"), "checkpoint": answer.get("checkpoint")}
        for what, known in newest.items():
            step = f"step {known['step']}, " if known and known.get("step") is not None else ""
            yield f"Newest {what} so far: {step}{known['uri'] if known else 'none'}"


def _resized(task_type: str, number: int, before: int, state: Any) -> str:
    if number == before:
        return f"already has {count(number, task_type)}, or is being resized to this number"
    if state == JobState.SUSPENDED:
        return f"is suspended, and will have {count(number, task_type)} when it is resumed"
    if number > before:
        return f"requests {count(number - before, 'container')}, and then continues with {count(number, task_type)}"
    return f"saves a checkpoint, and continues with {count(number, task_type)}"
