"""The kinds of Python environments that a job can name, told by how its ``python_env`` is written."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Optional

from tony_provider.runtime.spec.model import JobSpec, PythonEnv, unmarked
from tony_provider.runtime.spec.problems import child

ARCHIVE_ENDINGS = (".zip", ".tar.gz", ".tgz", ".tar")
PEX_ENDING = ".pex"
WHEEL_ENDING = ".whl"
ALLOWED = (
    "a directory on the nodes (an absolute path), an archive (whose name ends in "
    f"{', '.join(ARCHIVE_ENDINGS)}), a PEX ({PEX_ENDING}), or wheels ({WHEEL_ENDING}, or a directory of them)"
)
JOBS_OWN = "python_env"  # the path of the job's key, which task types may have, too
_PREFIX = "file://"


class EnvironmentKind(str, Enum):
    """What a ``python_env`` is, and so how its Python comes to a container."""

    DIRECTORY = "directory"  # that the nodes have, with bin/python
    ARCHIVE = "archive"  # made by venv-pack, conda-pack or `airflow tony env build`; containers get it unpacked
    PEX = "pex"
    WHEELS = "wheels"  # files, and directories of files: laid over the nodes' own Python


def is_archived(source: str) -> bool:
    """Whether a source is an archive to be unpacked, by the ending of its name."""
    return source.lower().endswith(ARCHIVE_ENDINGS)


def parts(python_env: PythonEnv) -> list[str]:
    """Return the paths and URIs of an environment, with their marks: a single one, or several wheels."""
    return python_env.split(",")


def without_marks(python_env: PythonEnv) -> PythonEnv:
    """Return the environment without ``STORED`` before its paths and URIs."""
    return PythonEnv(",".join(unmarked(part)[0] for part in parts(python_env)))


def kind_of(python_env: PythonEnv) -> Optional[EnvironmentKind]:
    """The kind of an environment; None: it cannot be one.

    What is neither absolute nor ends as an archive does can be a directory of wheels, beside the DAG or on the store.
    A source with the mark ``STORED`` is never a directory on the nodes.
    """
    named = parts(python_env)
    if len(named) > 1:
        other = any(is_archived(part) or part.lower().endswith(PEX_ENDING) for part in named)
        return None if other else EnvironmentKind.WHEELS
    if is_archived(named[0]):
        return EnvironmentKind.ARCHIVE
    if named[0].lower().endswith(PEX_ENDING):
        return EnvironmentKind.PEX
    if named[0].lower().endswith(WHEEL_ENDING):
        return EnvironmentKind.WHEELS
    return EnvironmentKind.DIRECTORY if node_directory(python_env).startswith("/") else EnvironmentKind.WHEELS


def node_directory(python_env: PythonEnv) -> str:
    """The path on the nodes of an environment that is a directory there."""
    return python_env[len(_PREFIX) :] if python_env.startswith(_PREFIX) else python_env


def named_environments(job: JobSpec) -> Iterator[tuple[str, Optional[str], PythonEnv]]:
    """Each environment that a job names: its key, the task type that it is of (None: the job's), itself."""
    if job.python_env is not None:
        yield JOBS_OWN, None, job.python_env
    for name, task in job.tasks.items():
        if task.python_env is not None:
            yield child(child("tasks", name), JOBS_OWN), name, task.python_env
