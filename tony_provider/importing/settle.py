"""The end of an import: what was read becomes a valid job, or an error that says what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tony_provider.importing.docker_variables import settle_images
from tony_provider.importing.draft import Draft, Path
from tony_provider.importing.imported import Imported, NotImportable
from tony_provider.runtime.frameworks import get_framework
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.spec.merge import merge
from tony_provider.runtime.spec.model import TENSORBOARD, Role
from tony_provider.runtime.spec.problems import Problem, SpecError, child

_STEP = re.compile(r"\.?([\w-]+)|\[(\d+)\]|\['([^']*)'\]")
_ORDER = ("framework", "name", "queue", "priority", "success", "start", "tolerated_failures", "preset")
_TASK_ORDER = ("role", "instances", "memory", "vcores", "gpus", "after", "command")
_UNKNOWN = "nothing says what it runs"


def settled(draft: Draft, system: str, source: str, *, command: str | None, given: Mapping[str, Any]) -> Imported:
    """What was imported, as a valid job.

    ``command`` is for task types whose own nobody knows; ``given`` is laid over the job. What our parser refuses of a
    value of theirs is left behind, with what it says. Raises NotImportable for a job that lacks what it needs.
    """
    _give_command(draft, command)
    settle_images(draft)
    while True:
        job = _in_order(merge(draft.job, given))
        _expect_commands(draft, job)
        try:
            parse_job(job)
        except SpecError as error:
            _leave_behind(draft, error, given)
        else:
            return Imported(system, source, job, draft.arguments, draft.left)


def _give_command(draft: Draft, command: str | None) -> None:
    for name, task in draft.tasks.items():
        if command and "command" not in task and not _has_its_own(draft.job, name, task):
            task["command"] = command
        if draft.exports and "command" in task:
            task["command"] = f"{draft.exports} && {task['command']}"


def _has_its_own(job: Mapping[str, Any], name: str, task: Mapping[str, Any]) -> bool:
    """Whether the framework has a command for the type."""
    role = task.get("role") or (name if name in {each.value for each in Role} else Role.WORKER.value)
    try:
        return bool(get_framework(str(job.get("framework"))).default_command(Role(role)))
    except (LookupError, ValueError):
        return False


def _expect_commands(draft: Draft, job: Mapping[str, Any]) -> None:
    tasks = job.get("tasks") or {}
    if not isinstance(tasks, Mapping) or not all(isinstance(task, Mapping) for task in tasks.values()):
        return  # the parser says so
    if not tasks:
        told = "\n".join(f"  {each}" for each in draft.left)
        raise NotImportable("there is no task type with an instance in it" + (f"; it says:\n{told}" if told else ""))
    lacking = [
        f"  {child(child('tasks', name), 'command')}: {draft.no_command.get(name, _UNKNOWN)}"
        for name, task in tasks.items()
        if name != TENSORBOARD and not task.get("command") and not _has_its_own(job, name, task)
    ]
    if lacking:
        first = lacking[0].split(":")[0].strip()
        raise NotImportable(
            "\n".join(
                [
                    "what its tasks run is not known:",
                    *lacking,
                    f"give it: --command 'python train.py' for all of them, or --set {first}='python train.py'",
                ]
            )
        )


def _leave_behind(draft: Draft, error: SpecError, given: Mapping[str, Any]) -> None:
    """Take out what is wrong and was theirs; raises NotImportable where that mends nothing."""
    wrong: dict[Path, tuple[str, str]] = {}
    for problem in error.problems:
        found = _origin(draft, _steps(problem.path))
        if found is not None and not _said(given, found[0]):
            wrong.setdefault(found[0], (found[1], problem.message))
    if not wrong:
        raise NotImportable(_told(error.problems)) from error
    for path in sorted(wrong, key=_place, reverse=True):  # of a list the later elements first
        key, message = wrong[path]
        draft.leave(key, f"{'.'.join(path)} here {message}", draft.remove(path))
        draft.origins.pop(path, None)


def _place(path: Path) -> list[tuple[int, str]]:
    return [(int(step) if step.isdecimal() else -1, step) for step in path]


def _told(problems: tuple[Problem, ...]) -> str:
    lines = "\n".join(f"  {each}" for each in problems)
    return f"what was read makes no valid job; lay other values over it with --set KEY=VALUE:\n{lines}"


def _steps(path: str) -> Path:
    return tuple(next(filter(None, found.groups()), "") for found in _STEP.finditer(path))


def _origin(draft: Draft, path: Path) -> tuple[Path, str] | None:
    """The place that the problem is at, as far as something of theirs was carried to it, and their key."""
    for length in range(len(path), 0, -1):
        if (key := draft.origins.get(path[:length])) is not None:
            element = path[: length + 1]
            is_element = len(element) > length and isinstance(draft.get(path[:length]), list)
            return (element if is_element else path[:length]), key
    return None


def _said(given: Mapping[str, Any], path: Path) -> bool:
    found: Any = given
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return True


def _in_order(job: Mapping[str, Any]) -> dict[str, Any]:
    """As people write it: what it is first, its tasks last, and of each task its command."""
    first = [name for name in _ORDER if name in job]
    middle = [name for name in job if name not in _ORDER and name != "tasks"]
    ordered = {name: job[name] for name in [*first, *middle] if job[name] not in ({}, [])}
    tasks = job.get("tasks")
    ordered["tasks"] = {name: _task_in_order(tasks[name]) for name in tasks} if isinstance(tasks, Mapping) else tasks
    return ordered


def _task_in_order(task: Any) -> Any:
    if not isinstance(task, Mapping):
        return task  # which the parser refuses
    task = _filled(task)
    known = [name for name in _TASK_ORDER if name in task and name != "command"]
    others = [name for name in task if name not in _TASK_ORDER]
    last = ["command"] if "command" in task else []
    return {name: task[name] for name in [*known, *others, *last]}


def _filled(given: Any) -> Any:
    """Without lists and mappings that nothing is left in."""
    if not isinstance(given, Mapping):
        return given
    kept = {name: _filled(value) for name, value in given.items()}
    return {name: value for name, value in kept.items() if value not in ({}, [])}
