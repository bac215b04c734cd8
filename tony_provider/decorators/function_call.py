"""Additions of ``@task.tony`` to a job: a command, files with the function and its call, a permanent exit code.

Also checks the keys of the returned value.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tony_provider.exceptions import TonyResultRefused, TonySpecError
from tony_provider.runtime.frameworks.base import has_default_command
from tony_provider.runtime.jobspec.model import Resource
from tony_provider.runtime.jobspec.problems import shown
from tony_provider.runtime.sdk import tony_call


def function_command_patch(whole: Mapping[str, Any], function: str) -> Mapping[str, Any]:
    """Return the keys to merge over a job so that each type without a command calls the function.

    The framework may supply a type's command; such a type does not call the function. ``whole`` is the job with all its
    layers. Raises TonySpecError if every type has a command.
    """
    tasks = whole.get("tasks")
    if not isinstance(tasks, Mapping):
        return {}  # the parser of the job reports the problem
    types = [
        name
        for name, task in tasks.items()
        if isinstance(task, Mapping)
        and not task.get("command")
        and not has_default_command(whole.get("framework"), str(name), task.get("role"))
    ]
    if tasks and not types and all(isinstance(task, Mapping) for task in tasks.values()):
        raise TonySpecError(
            f"tasks: every type has a command ({', '.join(map(str, tasks))}), so no task would call {function}(); "
            "remove the command of the types that should run the function"
        )
    patch: dict[str, Any] = {"tasks": {name: {"command": tony_call.COMMAND} for name in types}}
    restart = whole.get("restart") or {}
    codes = (restart.get("permanent_exit_codes") or []) if isinstance(restart, Mapping) else None
    if isinstance(codes, Sequence) and not isinstance(codes, str):
        patch["restart"] = {"permanent_exit_codes": [*codes, tony_call.REFUSED]}
    return patch


def encode_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the call as JSON, which does not depend on whether an argument was passed by position or by keyword.

    Raises TonySpecError for arguments that JSON cannot represent.
    """
    name = function.__code__.co_name  # its name in the source; ``__name__`` may differ
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TonySpecError(f"@task.tony: {name}() cannot be called with these arguments: {error}") from error
    problems = []
    for parameter, value in bound.arguments.items():
        try:
            bound.arguments[parameter] = tony_call.plain(value, parameter)
        except tony_call.NotJsonError as error:
            problems.append(str(error))
    if problems:
        raise TonySpecError(f"@task.tony: arguments of {name}() must be JSON: {'; '.join(problems)}")
    call = {"function": name, "args": list(bound.args), "kwargs": bound.kwargs}
    return json.dumps(call).encode()


def write_function_files(folder: Path, text: str, call: bytes) -> list[Resource]:
    """Write the function and its call to ``folder``. Return them as files of a job; all tries use the same names."""
    (folder / tony_call.FUNCTION_FILE).write_text(text, encoding="utf-8")
    (folder / tony_call.ARGUMENTS_FILE).write_bytes(call)
    return [Resource(str(folder / name), name) for name in (tony_call.FUNCTION_FILE, tony_call.ARGUMENTS_FILE)]


_PART = r"(?!\.{1,2}(?:/|\Z))[\w .,:=@+()-]+"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


def check_result_keys(keys: Iterable[object], taken: Collection[str]) -> None:
    """Check that each key can be an XCom of the task, and is not a key of the provider's own XComs.

    :param taken: the keys of the provider's own XComs.

    Raises TonyResultRefused.
    """
    for key in keys:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            rule = "letters, digits, blanks and _ . , : = @ + ( ) -, with / between two parts"
            raise TonyResultRefused(
                f"@task.tony: the returned key {shown(key)} cannot be an XCom; a key has only {rule}"
            )
        if key in taken:
            raise TonyResultRefused(
                f"@task.tony: the returned key {shown(key)} is the key of one of the task's own XComs; return "
                "another key, or leave multiple_outputs out"
            )
