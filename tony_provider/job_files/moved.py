"""A job whose file goes to another directory than that which its relative paths begin in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tony_provider.job_files.fill import has_template

_RESOURCES = ("files", "archives")


def moved(job: Mapping[str, Any], before: Path, after: Path) -> dict[str, Any]:
    """The job with paths that lead from ``after`` to what they led to from ``before``; names stay."""
    if before.resolve() == after.resolve():
        return dict(job)
    whole = _place(job, before, after)
    if isinstance(tasks := job.get("tasks"), Mapping):
        whole["tasks"] = {
            name: _place(task, before, after) if isinstance(task, Mapping) else task for name, task in tasks.items()
        }
    docker = job.get("docker")
    if isinstance(docker, Mapping) and "client_config" in docker:
        whole["docker"] = {**docker, "client_config": _path(docker["client_config"], before, after)}
    return whole


def _place(given: Mapping[str, Any], before: Path, after: Path) -> dict[str, Any]:
    """What the job and each task type may say."""
    whole = dict(given)
    for key in _RESOURCES:
        if isinstance(given.get(key), list):
            whole[key] = [_resource(each, before, after) for each in given[key]]
    environment = given.get("python_env")
    if isinstance(environment, str) and not has_template(environment):
        whole["python_env"] = ",".join(_path(part, before, after) for part in environment.split(","))
    elif isinstance(environment, list):
        whole["python_env"] = [_path(part, before, after) for part in environment]
    return whole


def _resource(given: Any, before: Path, after: Path) -> Any:
    if isinstance(given, Mapping):
        return {**given, "source": _path(given.get("source"), before, after)}
    if not isinstance(given, str):
        return given
    source, separator, name = given.partition("::")
    return f"{_path(source, before, after)}{separator}{name}"


def _path(source: Any, before: Path, after: Path) -> Any:
    if not isinstance(source, str) or "://" in source or source.startswith("/") or has_template(source):
        return source
    path = before / source.strip()
    return os.path.relpath(path.parent.resolve() / path.name, after.resolve())  # a link keeps its own name
