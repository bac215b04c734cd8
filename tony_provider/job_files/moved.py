"""A job whose file goes to another directory than that which its relative paths begin in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tony_provider.job_files.fill import has_template

_KEYS = ("files", "archives")
_PACKED = (".tar.gz", ".tgz", ".zip", ".tar")


def moved(job: Mapping[str, Any], before: Path, after: Path) -> dict[str, Any]:
    """The job with paths that lead from ``after`` to what they led to from ``before``; names stay."""
    if before.resolve() == after.resolve():
        return dict(job)
    whole = dict(job)
    for key in _KEYS:
        if isinstance(job.get(key), list):
            whole[key] = [_resource(each, before, after) for each in job[key]]
    environment = job.get("python_env")
    if isinstance(environment, str) and environment.endswith(_PACKED):
        whole["python_env"] = _path(environment, before, after)
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
    return os.path.relpath((before / source).resolve(), after.resolve())
