"""Import a job: detect the system of a file or call, read it, and check the result with our own parser.

For jobs of known but unsupported systems, the error explains why they are not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import attrs

from tony_provider.importers import hbox, linkedin_tony, skein, tf_yarn, torchx, yarn_services
from tony_provider.importers.job_source import Source, System, report_shell_variables, source_of
from tony_provider.importers.key_table import BadValue, Draft, ImportedJob, KeyPath, NotImportable, nested_mapping
from tony_provider.importers.yarn_terms import finish_images
from tony_provider.runtime.frameworks.base import has_default_command
from tony_provider.runtime.jobspec.model import TENSORBOARD
from tony_provider.runtime.jobspec.problems import Problem, SpecError, child
from tony_provider.runtime.parsing.parse import merge, parse_job

_SPARK = ("spark-submit", "spark-submit.sh", "pyspark")


@attrs.frozen
class UnsupportedSystem:
    """A system that is recognized but not read."""

    title: str  # display name
    knows: Callable[[Source], bool]
    why: str
    page: str  # reference to a documentation page, for the error message


def _is_sparks(source: Source) -> bool:
    return bool(source.calls(_is_call)) or (source.is_file and "TFCluster.run(" in source.text)


def _is_call(words: Sequence[str]) -> bool:
    return PurePosixPath(words[0]).name in _SPARK


def _is_tf_yarns(source: Source) -> bool:
    return source.is_file and re.search(r"^\s*(?:from|import) tf_yarn\b", source.text, re.MULTILINE) is not None


def _is_sliders(source: Source) -> bool:
    plain: Mapping[str, Any] = source.document or {}
    return isinstance(plain.get("components"), Mapping) and "schema" in plain


def _is_kubernetes(source: Source) -> bool:
    plain: Mapping[str, Any] = source.document or {}
    return (
        "apiVersion" in plain
        and "kind" in plain
        and bool(nested_mapping(plain, "spec") or nested_mapping(plain, "metadata"))
    )


UNSUPPORTED: Sequence[UnsupportedSystem] = (
    UnsupportedSystem(
        "TensorFlowOnSpark",
        _is_sparks,
        "is a Spark program: its sizes are in spark-submit, and the driver computes its cluster",
        'see the guide "Migrate from TensorFlowOnSpark"',
    ),
    UnsupportedSystem(
        "tf-yarn",
        _is_tf_yarns,
        "is a tf-yarn program without a call of run_on_yarn(…)",
        'see the guide "Migrate from tf-yarn"',
    ),
    UnsupportedSystem(
        "Slider",
        _is_sliders,
        "is part of a Slider application package, which YARN services have replaced",
        'see the guide "Migrate from YARN services"',
    ),
    UnsupportedSystem(
        "Kubernetes",
        _is_kubernetes,
        "is for Kubernetes, such as a job of Kubeflow Trainer",
        'see the page "Feature matrix"',
    ),
)

_STEP = re.compile(r"\.?([\w-]+)|\[(\d+)\]|\['([^']*)'\]")
_ORDER = ("framework", "name", "queue", "priority", "success", "start", "tolerated_failures", "preset")
_TASK_ORDER = ("role", "instances", "memory", "vcores", "gpus", "after")
_UNKNOWN = "the source has no command for this type"


def finish_import(
    draft: Draft, system: str, source: str, *, command: str | None, given: Mapping[str, Any]
) -> ImportedJob:
    """Return the imported job after validation.

    ``command`` is for task types without a known command; ``given`` overrides keys of the job. Values that our parser
    rejects are removed, and listed with the parser's message. Raises NotImportable if the rest is no valid job.
    """
    _give_command(draft, command)
    finish_images(draft)
    while True:
        job = _in_order(merge(draft.job, given))
        _expect_commands(draft, job)
        try:
            parse_job(job)
        except SpecError as error:
            _leave_behind(draft, error, given)
        else:
            return ImportedJob(system, source, job, draft.arguments, draft.left_out)


def _give_command(draft: Draft, command: str | None) -> None:
    for name, task in draft.tasks.items():
        if command and "command" not in task and not _has_own_command(draft.job, name, task):
            task["command"] = command
        if draft.exports and "command" in task:
            task["command"] = f"{draft.exports} && {task['command']}"


def _has_own_command(job: Mapping[str, Any], name: str, task: Mapping[str, Any]) -> bool:
    return has_default_command(job.get("framework"), name, task.get("role"))


def _expect_commands(draft: Draft, job: Mapping[str, Any]) -> None:
    tasks = job.get("tasks") or {}
    if not isinstance(tasks, Mapping) or not all(isinstance(task, Mapping) for task in tasks.values()):
        return  # the parser reports this error
    if not tasks:
        lines = "\n".join(f"  {each}" for each in draft.left_out)
        raise NotImportable("the source has no task instances" + (f"; not carried over:\n{lines}" if lines else ""))
    lacking = [
        f"  {child('tasks', name, 'command')}: {draft.no_command.get(name, _UNKNOWN)}"
        for name, task in tasks.items()
        if name != TENSORBOARD and not task.get("command") and not _has_own_command(job, name, task)
    ]
    if lacking:
        first = lacking[0].split(":")[0].strip()
        raise NotImportable(
            "\n".join(
                [
                    "the commands of these tasks are unknown:",
                    *lacking,
                    f"set them: --command 'python train.py' for all of them, or --set {first}='python train.py'",
                ]
            )
        )


def _leave_behind(draft: Draft, error: SpecError, given: Mapping[str, Any]) -> None:
    """Remove invalid values that were carried over. Raise NotImportable if none of them causes a problem."""
    wrong: dict[KeyPath, tuple[str, str]] = {}
    for problem in error.problems:
        found = _origin(draft, _steps(problem.path))
        if found is not None and not _said(given, found[0]):
            wrong.setdefault(found[0], (found[1], problem.message))
    if not wrong:
        raise NotImportable(_format_problems(error.problems)) from error
    for path in sorted(wrong, key=_place, reverse=True):  # list elements from the end, so that indexes stay valid
        key, message = wrong[path]
        draft.leave_out(key, f"{'.'.join(path)} here {message}", draft.remove(path))
        draft.origins.pop(path, None)


def _place(path: KeyPath) -> list[tuple[int, str]]:
    return [(int(step) if step.isdecimal() else -1, step) for step in path]


def _format_problems(problems: tuple[Problem, ...]) -> str:
    lines = "\n".join(f"  {each}" for each in problems)
    return f"the imported job is invalid; override values with --set KEY=VALUE:\n{lines}"


def _steps(path: str) -> KeyPath:
    return tuple(next(filter(None, found.groups()), "") for found in _STEP.finditer(path))


def _origin(draft: Draft, path: KeyPath) -> tuple[KeyPath, str] | None:
    """Return the path and the other system's key of an invalid value, or None if the value was not carried over."""
    for length in range(len(path), 0, -1):
        if (key := draft.origins.get(path[:length])) is not None:
            element = path[: length + 1]
            is_element = len(element) > length and isinstance(draft.get(path[:length]), list)
            return (element if is_element else path[:length]), key
    return None


def _said(given: Mapping[str, Any], path: KeyPath) -> bool:
    found: Any = given
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return True


def _in_order(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job in conventional order: general keys first, tasks last, and the command at the end of each task."""
    ordered = {name: value for name, value in _arranged(job, _ORDER, "tasks").items() if value not in ({}, [])}
    if isinstance(tasks := job.get("tasks"), Mapping):
        ordered["tasks"] = {name: _task_in_order(task) for name, task in tasks.items()}
    return ordered


def _task_in_order(task: Any) -> Any:
    if not isinstance(task, Mapping):
        return task  # the parser rejects it
    return _arranged(_filled(task), _TASK_ORDER, "command")


def _arranged(given: Mapping[str, Any], first: Sequence[str], last: str) -> dict[str, Any]:
    middle = [name for name in given if name not in (*first, last)]
    return {name: given[name] for name in (*first, *middle, last) if name in given}


def _filled(given: Any) -> Any:
    """Remove empty lists and mappings."""
    if not isinstance(given, Mapping):
        return given
    kept = {name: _filled(value) for name, value in given.items()}
    return {name: value for name, value in kept.items() if value not in ({}, [])}


SYSTEMS: Sequence[System] = (
    linkedin_tony.SYSTEM,
    skein.SYSTEM,
    yarn_services.SYSTEM,
    hbox.SYSTEM,
    tf_yarn.SYSTEM,
    torchx.SYSTEM,
)


def imported_from(
    words: Sequence[str],
    *,
    system: str | None = None,
    command: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> ImportedJob:
    """Import a job of ``system``, or of the detected system.

    ``words`` are the path of a file or the words of a call. ``command`` is for task types without a known command;
    ``given`` overrides keys of the job. Raises NotImportable.
    """
    source = source_of(words)
    of = _system(source, system)
    try:
        draft = of.read(source)
        report_shell_variables(draft, source, of.is_call)
    except BadValue as error:
        raise NotImportable(f"{source.label}: {error}") from error
    except RecursionError as error:
        raise NotImportable(f"{source.label}: nested too deeply") from error
    return finish_import(draft, of.title, source.label, command=command, given=given or {})


def _system(source: Source, name: str | None) -> System:
    if name is not None:
        return next(each for each in SYSTEMS if each.name == name)
    found = [each for each in SYSTEMS if each.knows(source)]
    if len(found) == 1:
        return found[0]
    for each in UNSUPPORTED if not found else ():
        if each.knows(source):
            raise NotImportable(f"{source.label} {each.why}. It cannot be imported; {each.page}")
    kinds = "\n".join(f"  {each.name}: {each.takes}" for each in SYSTEMS)
    what = "is not from a known system" if not found else f"could be from {' or '.join(each.title for each in found)}"
    raise NotImportable(f"{source.label} {what}; name the system with --from:\n{kinds}")
