"""Whether an environment can serve a notebook, as far as that is known before anything is started."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tony_provider.cluster.errors import JobRejected, SourceMissing
from tony_provider.cluster.file_roots import FileRoots
from tony_provider.cluster.history.environment_content import EnvironmentContent
from tony_provider.cluster.notebook.listed_packages import packages_of_archive, packages_of_directory
from tony_provider.cluster.open import OpenCluster
from tony_provider.cluster.prepared_submission import suitable_environments, with_defaults
from tony_provider.cluster.settings import Backend
from tony_provider.cluster.sources import LocalSource, SourceFinder, Sources
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.spec.python_env import JOBS_OWN, EnvironmentKind, kind_of, node_directory
from tony_provider.runtime.wheel_name import normalized

_SERVER = "jupyter-server"  # what JupyterLab and Notebook 7 are made of
_KERNELS = ("ipykernel", "xeus")  # a name that begins so, or has the word kernel in it


def expect_kernel(opened: OpenCluster, job: JobSpec, search_path: Sequence[Path], roots: FileRoots) -> None:
    """Raises JobRejected where a task's environment is known to have no Jupyter server, or no kernel.

    SourceMissing, StorageError; what is not known the container finds out.
    """
    job = with_defaults(job, opened.settings)
    sources = SourceFinder(opened.storage, opened.staging_dir, search_path, roots).find(job)
    contents = suitable_environments(opened, job, sources)
    problems = []
    for name, task in job.tasks.items():
        named = job.python_env_of(name)
        if named is None:
            continue
        key = JOBS_OWN if task.python_env is None else child(child("tasks", name), JOBS_OWN)
        packages = _known(contents.get(key), sources, key)
        if kind_of(named) is EnvironmentKind.DIRECTORY and opened.settings.backend is Backend.LOCAL:
            packages = packages_of_directory(Path(node_directory(named)))  # the nodes are this machine
        if packages is not None and (missing := missing_for_a_notebook(packages)):
            problems.append(
                f"{key}: {named} has {missing}; build an environment with `airflow tony env build`, of requirements "
                f"that name jupyterlab, or name one for the notebook alone: --set tasks.{name}.python_env=…"
            )
    if problems:
        raise JobRejected(problems)


def _known(content: EnvironmentContent | None, sources: Sources, key: str) -> Collection[str] | None:
    """The packages of an environment that has no others; None: that is not known, or it is laid over another one."""
    if content is None or content.kind is EnvironmentKind.WHEELS:
        return None
    if content.packages is not None:
        return content.packages
    local = _local(sources, key) if content.kind is EnvironmentKind.ARCHIVE else iter(())
    try:
        return next((packages_of_archive(each.path) for each in local), None)
    except OSError as error:
        raise SourceMissing(f"{key}: {content.python_env} cannot be read: {error}") from error


def _local(sources: Sources, key: str) -> Iterator[LocalSource]:
    return (each for each in sources.local if each.key == key)


def missing_for_a_notebook(packages: Collection[str]) -> str:
    """What is missing among these, in words; empty: nothing is known to be."""
    names = {normalized(each) for each in packages}
    if _SERVER not in names:
        return "no Jupyter server (jupyterlab)"
    kernel = any("kernel" in each or each.startswith(_KERNELS) for each in names)
    return "" if kernel else "a Jupyter server and no kernel (ipykernel)"
