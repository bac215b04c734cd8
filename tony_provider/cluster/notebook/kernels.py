"""Whether an environment can serve a notebook, as far as that is known before anything is started."""

from __future__ import annotations

from collections.abc import Mapping

from tony_provider.cluster.history.environment_content import EnvironmentContent
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.spec.python_env import JOBS_OWN, EnvironmentKind
from tony_provider.runtime.wheel_name import normalized

_SERVER = "jupyter-server"  # what JupyterLab and Notebook 7 are made of
_KERNELS = ("ipykernel", "xeus")  # a name that begins so, or has the word kernel in it
_OWN_ALONE = (EnvironmentKind.PEX, EnvironmentKind.ARCHIVE)  # wheels are laid over what the nodes have


def kernel_problems(job: JobSpec, contents: Mapping[str, EnvironmentContent]) -> list[str]:
    """What is missing in the environment of a notebook's job, by its keys. What is not known is no problem."""
    found = []
    for name, task in job.tasks.items():
        key = JOBS_OWN if task.python_env is None else child(child("tasks", name), JOBS_OWN)
        content = contents.get(key)
        if content is None or content.packages is None or content.kind not in _OWN_ALONE:
            continue
        if missing := _missing({normalized(each) for each in content.packages}):
            found.append(
                f"{key}: {content.python_env} has {missing}; build one with `airflow tony env build` of requirements "
                f"that name jupyterlab, or name it for the notebook alone: --set tasks.{name}.python_env=…"
            )
    return found


def _missing(packages: set[str]) -> str:
    if _SERVER not in packages:
        return "no Jupyter server (jupyterlab)"
    kernel = any("kernel" in each or each.startswith(_KERNELS) for each in packages)
    return "" if kernel else "a Jupyter server and no kernel (ipykernel)"
