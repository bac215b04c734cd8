"""The environment variables by which a NodeManager starts a container in an image.

Docker's: https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/DockerContainers.html
runc's: https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/RuncContainers.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tony_provider.runtime.spec.images import is_dockers
from tony_provider.runtime.spec.model import Docker

_TYPE = "YARN_CONTAINER_RUNTIME_TYPE"
_DOCKER, _RUNC = "YARN_CONTAINER_RUNTIME_DOCKER_", "YARN_CONTAINER_RUNTIME_RUNC_"


def plain_variables() -> dict[str, str]:
    """For a plain process, also where the nodes' default is an image."""
    return {_TYPE: "default"}


def image_variables(image: Docker) -> dict[str, str]:
    """For a container in an image."""
    if not is_dockers(image):
        return {_TYPE: "runc", f"{_RUNC}IMAGE": image.image or "", **_mounts(_RUNC, image.mounts)}
    variables = {
        "IMAGE": image.image,
        "CONTAINER_NETWORK": image.network,
        "CONTAINER_PID_NAMESPACE": image.pid_namespace.value if image.pid_namespace else None,
        "RUNTIME": image.oci_runtime,
        "TMPFS_MOUNTS": ",".join(image.tmpfs or ()),
        "RUN_PRIVILEGED_CONTAINER": "true" if image.privileged else None,  # no other value is allowed
        "DELAYED_REMOVAL": "true" if image.delayed_removal else None,
        # Else the image's own entry point is started in place of our program where the NodeManager's environment has
        # made that the default.
        "RUN_OVERRIDE_DISABLE": "false",
    }
    said = {f"{_DOCKER}{name}": value for name, value in variables.items() if value}
    return {_TYPE: "docker", **said, **_mounts(_DOCKER, image.mounts)}


def _mounts(prefix: str, mounts: Optional[Sequence[str]]) -> dict[str, str]:
    return {f"{prefix}MOUNTS": ",".join(map(_with_mode, mounts))} if mounts else {}


def _with_mode(mount: str) -> str:
    """Before Hadoop 3.2 each needs one."""
    return mount if mount.count(":") > 1 else f"{mount}:rw"
