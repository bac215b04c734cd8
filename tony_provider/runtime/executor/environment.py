"""The environment of a user process: what the node gives, what the job says, and nothing of the runtime's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from tony_provider.runtime import contract
from tony_provider.runtime.executor.checkpoint_directory import Resumed
from tony_provider.runtime.executor.executor_container import ExecutorContainer
from tony_provider.runtime.executor.workspace import Workspace
from tony_provider.runtime.storage import uris

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# The token file holds the keys of the executor's connection; HadoopAccess makes another one where the job asks for it.
_OWN = frozenset(
    {
        contract.ENV_TOKEN_FILE,
        contract.ENV_CONTAINER_ID,  # libraries such as Spark take it for a sign that all the rest is there too
        contract.ENV_NODE_HOST,
        contract.ENV_NODE_PORT,
        contract.ENV_LOCAL_DIRS,
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "XDG_RUNTIME_DIR",
    }
)


def user_environment(
    container: ExecutorContainer,
    workspace: Workspace,
    cluster: Mapping[str, str],
    resumed: Optional[Resumed],
    python_bin: Path,
) -> dict[str, str]:
    """The environment variables of a user process.

    ``cluster`` is what the generation's rendezvous, the framework and Hadoop say; ``resumed`` what it goes on from.
    Later ones win: the node's, our directories, what Airflow's side adds, the cluster's, the job's ``env``, the task
    type's, the user's secrets, and TONY_* variables of the contract over all.
    """
    env = {
        **node_environment(container),
        **_places(workspace),
        "PYTHONUNBUFFERED": "1",  # so that the last lines before a kill are not lost
        "PYTHONFAULTHANDLER": "1",  # so that a crash in a library says where
        **container.description.environment,
        **cluster,
        **container.job.env,
        **container.spec.env,
        **container.user_secrets,
        **_contract(container, workspace, resumed, leads=cluster.get(contract.ENV_RANK) == "0"),
        **{name: value for name, value in cluster.items() if name.startswith(contract.OWN_ENV_PREFIX)},
    }
    env["PATH"] = os.pathsep.join([str(python_bin), env.get("PATH") or _DEFAULT_PATH])
    # A script's own folder is where its link leads, in the node's cache: modules beside it are found in the container.
    env["PYTHONPATH"] = os.pathsep.join(
        [*filter(None, [env.get("PYTHONPATH")]), str(workspace.container), str(workspace.sdk)]
    )
    return env


def node_environment(container: ExecutorContainer) -> dict[str, str]:
    """The variables that the node gives, without what is the executor's own."""
    hidden = _OWN if container.job.hadoop else _OWN | {contract.ENV_TICKET}
    return {
        name: value
        for name, value in container.environ.items()
        if name not in hidden and not name.startswith(contract.OWN_ENV_PREFIX)
    }


def _places(workspace: Workspace) -> dict[str, str]:
    home = workspace.home
    return {
        "HOME": str(home),
        "TMPDIR": workspace.tmpdir,
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "PWD": str(workspace.container),
    }


def _contract(
    container: ExecutorContainer, workspace: Workspace, resumed: Optional[Resumed], *, leads: bool
) -> dict[str, str]:
    """``leads``: the model of this process is the job's."""
    env = {
        contract.ENV_APPLICATION_ID: container.identity.application_id,
        contract.ENV_CONTAINER: container.identity.container_id,  # what the guard knows its processes by
        contract.ENV_ATTEMPT: str(container.identity.attempt),
        contract.ENV_METRICS_FILE: str(workspace.metrics_file),
        contract.ENV_MODEL_DIR: str(workspace.model),
        contract.ENV_RESULT_FILE: str(workspace.result_file),
        contract.ENV_CHECKPOINT_REQUEST: str(workspace.checkpoint_request),
        contract.ENV_TENSORBOARD_DIR: str(workspace.tensorboard),
    }
    if leads:
        env[contract.ENV_EXPORT_DIR] = str(workspace.exports)
        env[contract.ENV_EXPORT_REQUEST] = str(workspace.export_request)
    if container.shows_tensorboard:
        env[contract.ENV_TENSORBOARD_PATH] = container.tensorboard_path
    description = container.description
    if description.training:
        env[contract.ENV_TRAINING_ID] = description.training
    if description.chain_dir:
        env[contract.ENV_CHECKPOINT_URI] = uris.join(description.chain_dir, contract.USER_CHECKPOINTS_DIR)
    if description.warm_start:
        env[contract.ENV_WARM_START] = str(workspace.warm_start)
    if resumed is not None:
        if resumed.path:
            env[contract.ENV_RESUME_FROM] = resumed.path
        if resumed.point.step is not None:
            env[contract.ENV_RESUME_STEP] = str(resumed.point.step)
    return env
