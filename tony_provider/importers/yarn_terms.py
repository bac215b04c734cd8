"""Convert terms of YARN that several systems use: HDFS paths, container runtime variables and placement constraints."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import attrs

from tony_provider.importers.key_table import BadValue, Draft, KeyPath, boolean, nested_mapping, number, words
from tony_provider.runtime.jobspec.placement import SELF, TagTarget


def on_hdfs(draft: Draft, key: str, path: object) -> str:
    """Return the URI of an HDFS path without scheme, and report a path that is relative to the user's home."""
    text = str(path)
    if "://" in text:
        return text
    if not text.startswith("/"):
        draft.leave_out(key, "is relative to the user's home on HDFS, here to the root; write the absolute path", text)
    return f"hdfs:///{text.lstrip('/')}"


_PREFIX = "YARN_CONTAINER_RUNTIME_"
_DOCKER, _RUNC = f"{_PREFIX}DOCKER_", f"{_PREFIX}RUNC_"
_TYPE = f"{_PREFIX}TYPE"
ENTRY_POINT = f"{_DOCKER}RUN_OVERRIDE_DISABLE"
_KEYS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    **{f"{each}IMAGE": ("image", str) for each in (_DOCKER, _RUNC)},
    **{f"{each}MOUNTS": ("mounts", words) for each in (_DOCKER, _RUNC)},
    f"{_DOCKER}TMPFS_MOUNTS": ("tmpfs", words),
    f"{_DOCKER}CONTAINER_NETWORK": ("network", str),
    f"{_DOCKER}RUN_PRIVILEGED_CONTAINER": ("privileged", boolean),
    f"{_DOCKER}CONTAINER_PID_NAMESPACE": ("pid_namespace", str),
    f"{_DOCKER}RUNTIME": ("oci_runtime", str),
    f"{_DOCKER}DELAYED_REMOVAL": ("delayed_removal", boolean),
}
_OF_THE_JOB = f"{_DOCKER}CLIENT_CONFIG"
_RUNTIMES = {"docker": None, "runc": "runc", "default": "none"}  # None: no key, because an image implies docker


def take_image(draft: Draft, above: KeyPath, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert YARN's container runtime variables to ``docker`` keys below a path. Return the other variables."""
    rest = {}
    for name, value in given.items():
        if not name.startswith(_PREFIX):
            rest[name] = value
            continue
        full_key = f"{key}.{name}"
        try:
            if name == _TYPE:
                _put_runtime(draft, above, full_key, str(value).lower())
            elif name == _OF_THE_JOB:
                draft.put("docker.client_config", value, full_key)
            elif name in _KEYS:
                here, read = _KEYS[name]
                draft.put((*above, "docker", here), read(value), full_key)
            elif name == ENTRY_POINT:
                if boolean(value):
                    reason = "a command is always given; the image's own entry point is not run"
                    draft.leave_out(full_key, reason, value)
            else:
                draft.leave_out(full_key, "no key of `docker` corresponds to this variable", value)
        except BadValue as error:
            draft.leave_out(full_key, str(error), value)
    return rest


def _put_runtime(draft: Draft, above: KeyPath, full_key: str, runtime: str) -> None:
    if runtime not in _RUNTIMES:
        draft.leave_out(full_key, f"is not one of {', '.join(_RUNTIMES)}", runtime)
    elif (ours := _RUNTIMES[runtime]) is not None:
        draft.put((*above, "docker", "runtime"), ours, full_key)


def finish_images(draft: Draft) -> None:
    """Remove image settings that have no effect.

    If the job has no image of its own, tasks without an image must not inherit its ``docker`` settings.
    """
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
    return nested_mapping(task, "docker")


def _leave(draft: Draft, place: KeyPath) -> None:
    for name, value in draft.remove(place).items():
        key = draft.origins.pop((*place, name), name)
        draft.leave_out(key, f"has no effect without an image: `docker.{name}`", value)


ANY_NUMBER = 2**31 - 1  # Java's Integer.MAX_VALUE
_SCOPES = ("node", "rack")
_JOINED = re.compile(r"(and|or)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_DEEPEST = 20


@attrs.frozen
class Rules:
    """Placement constraints about other containers, and attributes of the node."""

    constraints: list[dict[str, Any]] = attrs.field(factory=list)
    attributes: list[str] = attrs.field(factory=list)

    def __add__(self, other: Rules) -> Rules:
        return Rules([*self.constraints, *other.constraints], [*self.attributes, *other.attributes])


def read_expression(text: str, own: Collection[str], depth: int = 0) -> Rules:
    """Parse a placement expression of YARN (PlacementConstraintParser since Hadoop 3.2). Raises BadValue.

    ``own`` has the tags of the containers to place.
    """
    if depth > _DEEPEST:
        raise BadValue("is nested too deeply")
    if joined := _JOINED.fullmatch(text.strip()):
        if joined[1].lower() == "or":
            raise BadValue("has an alternative (or), but all rules of `placement` apply together")
        parts = [read_expression(part, own, depth + 1) for part in _parts(joined[2])]
        return sum(parts, Rules())
    words = [word.strip() for word in text.split(",") if word.strip()]
    kind = words[0].lower() if words else ""
    if kind in ("in", "notin", "cardinality"):
        return Rules(list(_about_tags(kind, words[1:], own)))
    return Rules([], [_attribute(words, text)])


def _about_tags(kind: str, words: list[str], own: Collection[str]) -> Iterator[dict[str, Any]]:
    least_words = 4 if kind == "cardinality" else 2
    if len(words) < least_words or words[0].lower() not in _SCOPES:
        raise BadValue(f"should be {kind},node or rack,TAG" + (",MIN,MAX" if kind == "cardinality" else ""))
    scope, tags = words[0].lower(), words[1:]
    if kind == "notin":
        yield apart(tags, scope)
    elif kind == "in":
        yield from (beside([tag], scope) for tag in tags)
    else:
        *tags, least, most = tags
        for tag in tags:
            yield from counted(tag, scope, number(least), number(most), own)


def _attribute(words: list[str], text: str) -> str:
    if len(words) != 1 or not re.fullmatch(r"[^=!]+!?=[^=!]+", words[0]):
        several = len(words) > 1 and "=" in words[0]
        raise BadValue(
            "an attribute has one value here" if several else f"is not a placement constraint that YARN reads: {text!r}"
        )
    return words[0]


def _parts(text: str) -> Iterator[str]:
    """Split at colons that are not within brackets, and yield the parts."""
    depth, begin = 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == ":" and depth == 0:
            yield text[begin:index]
            begin = index + 1
    yield text[begin:]


# -- our constraints ---------------------------------------------------------------------------------------------------


def beside(tags: list[str], scope: str) -> dict[str, Any]:
    """Return the constraint to run on the same node or rack as a container with one of the tags."""
    return {"affinity": tags, **_of(scope)}


def apart(tags: list[str], scope: str) -> dict[str, Any]:
    """Return the constraint not to run on the node or rack of any container with one of the tags."""
    return {"anti_affinity": tags, **_of(scope)}


def counted(tag: str, scope: str, least: int, most: int, own: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield a constraint on the containers with the tag per node or rack. Yield none if any number is allowed.

    YARN counts only the containers that already exist. Our ``max`` also counts the new container, if it has the tag.
    """
    if most <= 0:
        yield apart([tag], scope)
    elif least > 0 or most < ANY_NUMBER:
        rule: dict[str, Any] = {"cardinality": tag}
        if least > 0:
            rule["min"] = least
        if most < ANY_NUMBER:
            rule["max"] = most + 1 if _is_own(tag, own) else most
        yield {**rule, **_of(scope)}


def _is_own(tag: str, own: Collection[str]) -> bool:
    try:
        target = TagTarget.parse(tag)
    except ValueError:
        return False
    return target.own and target.tag in own


def _of(scope: str) -> Mapping[str, str]:
    return {} if scope == _SCOPES[0] else {"scope": scope}


def own_tags_in(rules: Rules) -> Iterator[str]:
    """Yield the tags in the rules that refer to containers of the same application."""
    for rule in rules.constraints:
        named = [
            *rule.get("affinity", []),
            *rule.get("anti_affinity", []),
            *([rule["cardinality"]] if "cardinality" in rule else []),
        ]
        for text in named:
            try:
                target = TagTarget.parse(text)
            except ValueError:
                continue
            if target.namespace == SELF:
                yield target.tag
