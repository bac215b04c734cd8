"""Images: the variables of a launch by which YARN knows of one, and what is said of images where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tony_provider.importing.draft import Draft, Path
from tony_provider.importing.keys import BadValue
from tony_provider.importing.values import below, truth, words

_PREFIX = "YARN_CONTAINER_RUNTIME_"
_DOCKER, _RUNC = f"{_PREFIX}DOCKER_", f"{_PREFIX}RUNC_"
_TYPE = f"{_PREFIX}TYPE"
ENTRY_POINT = f"{_DOCKER}RUN_OVERRIDE_DISABLE"
_KEYS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    **{f"{each}IMAGE": ("image", str) for each in (_DOCKER, _RUNC)},
    **{f"{each}MOUNTS": ("mounts", words) for each in (_DOCKER, _RUNC)},
    f"{_DOCKER}TMPFS_MOUNTS": ("tmpfs", words),
    f"{_DOCKER}CONTAINER_NETWORK": ("network", str),
    f"{_DOCKER}RUN_PRIVILEGED_CONTAINER": ("privileged", truth),
    f"{_DOCKER}CONTAINER_PID_NAMESPACE": ("pid_namespace", str),
    f"{_DOCKER}RUNTIME": ("oci_runtime", str),
    f"{_DOCKER}DELAYED_REMOVAL": ("delayed_removal", truth),
}
_OF_THE_JOB = f"{_DOCKER}CLIENT_CONFIG"
_RUNTIMES = {"docker": None, "runc": "runc", "default": "none"}  # the first is what an image means anyway


def take_image(draft: Draft, above: Path, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Put what variables say of an image into the ``docker`` below a path; the other variables."""
    rest = {}
    for name, value in given.items():
        if not name.startswith(_PREFIX):
            rest[name] = value
            continue
        told = f"{key}.{name}"
        try:
            if name == _TYPE:
                _put_runtime(draft, above, told, str(value).lower())
            elif name == _OF_THE_JOB:
                draft.put("docker.client_config", value, told)
            elif name in _KEYS:
                here, read = _KEYS[name]
                draft.put((*above, "docker", here), read(value), told)
            elif name == ENTRY_POINT:
                if truth(value):
                    draft.leave(told, "a command is always given; the image's own entry point is not run", value)
            else:
                draft.leave(told, "no key of `docker` does what this variable does", value)
        except BadValue as error:
            draft.leave(told, str(error), value)
    return rest


def _put_runtime(draft: Draft, above: Path, told: str, runtime: str) -> None:
    if runtime not in _RUNTIMES:
        draft.leave(told, f"is none of {', '.join(_RUNTIMES)}", runtime)
    elif (ours := _RUNTIMES[runtime]) is not None:
        draft.put((*above, "docker", "runtime"), ours, told)


def settle_images(draft: Draft) -> None:
    """Leave behind what is said of images where there is none, and keep what has none out of those of others."""
    jobs = draft.get("docker") or {}
    if jobs.get("image"):
        return
    with_image = [name for name, task in draft.tasks.items() if _own(task).get("image")]
    for name, task in draft.tasks.items():
        if name not in with_image and _own(task) and _own(task).get("runtime") != "none":
            _leave(draft, ("tasks", name, "docker"))
        if name not in with_image and with_image and jobs and not task.get("docker"):
            draft.put(("tasks", name, "docker"), False, "image")
    if jobs and not with_image:
        _leave(draft, ("docker",))
    elif jobs and not draft.get("am.docker"):
        draft.put("am.docker", False, "image")


def _own(task: Mapping[str, Any]) -> Mapping[str, Any]:
    return below(task, "docker")


def _leave(draft: Draft, place: Path) -> None:
    for name, value in draft.remove(place).items():
        key = draft.origins.pop((*place, name), name)
        draft.leave(key, f"means nothing without an image: `docker.{name}`", value)
