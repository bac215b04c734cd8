"""Validate the keys ``docker`` of a job, its master and its task types, and the key ``placement``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.jobspec.container_content import (
    HOST_NETWORK,
    MASTER_DOCKER_KEY,
    NO_MASTER_NETWORK,
    docker_keys,
    images,
    is_docker_image,
)
from tony_provider.runtime.jobspec.model import ContainerRuntime, Docker, JobSpec
from tony_provider.runtime.jobspec.placement import (
    SELF,
    AttributeRule,
    Placement,
    PlacementConstraint,
    PlacementScope,
    TagTarget,
    own_tags,
)
from tony_provider.runtime.jobspec.problems import NOT_GIVEN, Problem, child, item, suggestion

JOBS_OWN = "docker"  # path of the job's key, which the types' keys override

# YARN's pattern (DockerLinuxContainerRuntime); YARN rejects other names only when it starts the container.
_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?[a-z0-9_./-]+(?::\w[\w.-]*)?(?:@sha256:[a-z0-9]{12,64})?", re.ASCII
)
_PATH = r"/[^:,;\s\"'`$\\{}]*"  # without characters that are special in YARN's lists or in the shell
_MOUNT = re.compile(rf"{_PATH}:{_PATH}(?::(?:ro|rw)(?:\+r?(?:shared|slave|private))?)?")
_TMPFS = re.compile(_PATH)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)  # of a network or a Docker runtime
_OF_RUNC = frozenset({"image", "mounts", "runtime"})


def docker_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of the keys ``docker``, which choose the images of containers."""
    for path, docker in docker_keys(job).items():
        yield from _values(path, docker)
        yield from _contradictions(path, docker)
    every = images(job)
    # By path, so that a problem of the job's key is reported once, although several kinds of containers inherit it.
    problems: dict[str, Problem] = {}
    for path, image in every.items():
        for problem in _as_a_whole(job, path, image):
            problems.setdefault(problem.path, problem)
    yield from problems.values()
    if job.docker is not None and job.docker.client_config and not any(map(is_docker_image, every.values())):
        yield Problem("docker.client_config", job.docker.client_config, "has no effect: no container runs in Docker")


def _values(path: str, docker: Docker) -> Iterator[Problem]:
    if docker.image is not None and not _IMAGE.fullmatch(docker.image):
        yield Problem(
            child(path, "image"),
            docker.image,
            "must be an image name that YARN accepts: registry/name:tag or registry/name@sha256:…, in lower case",
        )
    yield from _each(child(path, "mounts"), docker.mounts, _MOUNT, "SOURCE:TARGET:MODE of absolute paths and ro or rw")
    yield from _each(child(path, "tmpfs"), docker.tmpfs, _TMPFS, "an absolute path")
    for name in ("network", "oci_runtime"):
        value = getattr(docker, name)
        if value is not None and not _NAME.fullmatch(value):
            yield Problem(child(path, name), value, "must be a name of letters, digits, _, . and -")
    if docker.client_config is not None and not (docker.client_config.strip() and docker.client_config.isprintable()):
        yield Problem(child(path, "client_config"), docker.client_config, "must be a path or URI")


def _each(path: str, values: Optional[Sequence[str]], pattern: re.Pattern[str], form: str) -> Iterator[Problem]:
    for index, value in enumerate(values or ()):
        if not pattern.fullmatch(value):
            yield Problem(item(path, index), value, f"must be {form}, without blanks or any of , ; \" ' ` $ \\ {{ }}")


def _contradictions(path: str, docker: Docker) -> Iterator[Problem]:
    given = _given(docker)
    if docker.runtime is ContainerRuntime.NONE:
        for name in given - {"runtime"}:
            yield Problem(child(path, name), getattr(docker, name), "has no effect with runtime: none")
    if docker.client_config is not None and path != JOBS_OWN:
        yield Problem(
            child(path, "client_config"),
            docker.client_config,
            f"must be set as {JOBS_OWN}.client_config, which may contain the credentials of several registries",
        )


def _as_a_whole(job: JobSpec, path: str, docker: Optional[Docker]) -> Iterator[Problem]:
    """Yield problems of the keys that one kind of container has, inherited keys included."""
    if docker is None:
        return
    own = docker_keys(job).get(path)

    def place(name: str) -> str:
        return child(path if own is not None and getattr(own, name) is not None else JOBS_OWN, name)

    if docker.image is None:
        yield Problem(child(path if own else JOBS_OWN, "image"), NOT_GIVEN, "is required")
    if docker.runtime is ContainerRuntime.RUNC:
        for name in sorted(_given(docker) - _OF_RUNC):
            yield Problem(place(name), getattr(docker, name), "YARN's runc supports image and mounts only")
        for mount in docker.mounts or ():
            if "+" in mount.rpartition(":")[2]:
                yield Problem(place("mounts"), docker.mounts, "YARN's runc supports only the mount modes ro and rw")
    if docker.network == "none":
        yield Problem(place("network"), docker.network, "without a network no task reaches its application master")
    elif path == MASTER_DOCKER_KEY and docker.network not in (None, HOST_NETWORK):
        yield Problem(place("network"), docker.network, NO_MASTER_NETWORK)


def _given(docker: Docker) -> set[str]:
    return {field.name for field in attrs.fields(Docker) if getattr(docker, field.name) is not None}


_HOST = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_RACK = re.compile(r"(/[\w.-]+)+", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_LONGEST_TAG = 100  # characters


def placement_problems(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of the key ``placement`` of the task types."""
    problems = [*_of_each(job)]
    yield from problems or _never_placed(job)


def _of_each(job: JobSpec) -> Iterator[Problem]:
    own = {tag for name, task in job.tasks.items() for tag in own_tags(name, task.placement)}
    for task_type, task in job.tasks.items():
        if task.placement is not None:
            path = child("tasks", task_type, "placement")
            problems = [*_written(task.placement, path, sorted(own))]
            yield from problems or _placement_contradictions(job, task_type, task.placement, path)


def _written(placement: Placement, path: str, own: list[str]) -> Iterator[Problem]:
    for key, form, what in (
        ("nodes", _HOST, "must be the node's host name as YARN lists it, without a port"),
        ("racks", _RACK, "must be a rack's name in YARN's topology, such as /rack1"),
    ):
        for index, name in enumerate(getattr(placement, key)):
            if not form.fullmatch(name):
                yield Problem(item(child(path, key), index), name, what)
    for index, tag in enumerate(placement.tags):
        if not _TAG.fullmatch(tag) or len(tag) > _LONGEST_TAG:
            message = f"a tag has 1 to {_LONGEST_TAG} letters, digits, -, _ and ., and begins with a letter or digit"
            yield Problem(item(child(path, "tags"), index), tag, message)
    for index, text in enumerate(placement.attributes):
        try:
            AttributeRule.parse(text)
        except ValueError as error:
            yield Problem(item(child(path, "attributes"), index), text, str(error))
    for index, rule in enumerate(placement.constraints):
        yield from _rule(rule, item(child(path, "constraints"), index), own)


def _rule(rule: PlacementConstraint, path: str, own: list[str]) -> Iterator[Problem]:
    kinds = [kind for kind in ("affinity", "anti_affinity", "cardinality") if getattr(rule, kind)]
    if len(kinds) != 1:
        yield Problem(path, kinds or NOT_GIVEN, "must have exactly one of affinity, anti_affinity and cardinality")
        return
    namespaces: set[str] = set()
    for text in rule.tags:
        try:
            target = TagTarget.parse(text)
        except ValueError as error:
            yield Problem(child(path, kinds[0]), text, str(error))
            continue
        namespaces.add(target.namespace)
        if target.namespace == SELF and target.tag not in own:
            known = (
                suggestion(target.tag, own) or f"; it has {', '.join(own)}; for other jobs use not-self/{target.tag}"
            )
            yield Problem(child(path, kinds[0]), text, f"the job has no task type and no tag of this name{known}")
    if rule.affinity and len(namespaces) > 1:
        message = "YARN treats tags as alternatives only within one namespace (not-self/ …); use one rule per namespace"
        yield Problem(child(path, "affinity"), rule.affinity, message)
    if rule.cardinality is None:
        for key in ("min", "max"):
            if getattr(rule, key):
                yield Problem(child(path, key), getattr(rule, key), "is allowed only with cardinality")
    elif rule.min < 0:
        yield Problem(child(path, "min"), rule.min, "must be at least 0")
    elif rule.max is not None and rule.max < max(1, rule.min):
        yield Problem(
            child(path, "max"), rule.max, f"must be at least {max(1, rule.min)}; use anti_affinity to allow none"
        )
    elif rule.max is None and not rule.min:
        yield Problem(child(path, "cardinality"), rule.cardinality, "needs min or max")


def _placement_contradictions(job: JobSpec, task_type: str, placement: Placement, path: str) -> Iterator[Problem]:
    if (placement.nodes or placement.racks) and job.placed_by_rules(task_type):
        key = "nodes" if placement.nodes else "racks"
        message = "YARN cannot combine nodes or racks with rules and tags; this type has some, or others' rules name it"
        yield Problem(child(path, key), getattr(placement, key), message)
    elif placement.required and not placement.nodes and not placement.racks:
        yield Problem(child(path, "required"), True, "is allowed only with nodes or racks")
    label = job.tasks[task_type].node_label or job.node_label
    if label and _rules_for_yarn(placement) > 1:
        message = (
            f"YARN applies only one rule together with a node label ({label}); remove the label or the other rules"
        )
        yield Problem(child(path, "constraints"), _rules_for_yarn(placement), message)
    yield from _of_attributes(placement, path)
    yield from _of_rules(job, task_type, placement, path)


def _rules_for_yarn(placement: Placement) -> int:
    """Return how many YARN constraints represent a type's placement, see ``container_requests.Ask``."""
    rules = sum(max(1, len(rule.anti_affinity)) for rule in placement.constraints)
    return rules + len(placement.attributes)


def _of_attributes(placement: Placement, path: str) -> Iterator[Problem]:
    wanted: dict[str, str] = {}
    rules = [AttributeRule.parse(text) for text in placement.attributes]
    for index, rule in enumerate(rules):
        value = wanted.setdefault(rule.name, rule.value) if rule.equal else wanted.get(rule.name)
        if value is not None and (value != rule.value) is rule.equal:
            where = item(child(path, "attributes"), index)
            yield Problem(where, placement.attributes[index], f"contradicts {rule.name}={value}, so no node matches")


def _of_rules(job: JobSpec, task_type: str, placement: Placement, path: str) -> Iterator[Problem]:
    """Yield problems of rules that contradict each other, or that keep containers of the type from being placed."""
    together = [(target, rule) for rule in placement.constraints for target in map(TagTarget.parse, rule.affinity)]
    own = own_tags(task_type, placement)
    for index, rule in enumerate(placement.constraints):
        where = item(child(path, "constraints"), index)
        for target in map(TagTarget.parse, rule.tags):
            beside = [other for tag, other in together if tag == target and _within(other.scope, rule.scope)]
            if rule.anti_affinity and beside:
                message = f"contradicts the affinity to {target.tag} on the same {beside[0].scope.value}"
                yield Problem(child(where, "anti_affinity"), rule.anti_affinity, message)
            if rule.cardinality is None or target.tag not in own or not target.own:
                continue
            if rule.min:
                message = (
                    "counts only containers that are already placed, so the first one would wait forever; remove min"
                )
                yield Problem(child(where, "min"), rule.min, message)
            if beside and rule.max is not None and rule.max < job.minimum_containers(task_type):
                message = f"{job.minimum_containers(task_type)} containers must share one {beside[0].scope.value}"
                yield Problem(child(where, "max"), rule.max, message)


def _never_placed(job: JobSpec) -> Iterator[Problem]:
    """Yield problems of types that must be next to each other, so that none of them can be placed first."""
    tags = {name: own_tags(name, task.placement) for name, task in job.tasks.items()}
    wanted = {name: list(_wanted(task.placement or Placement(), tags[name])) for name, task in job.tasks.items()}
    waiting = {name for name in job.tasks if wanted[name]}
    coming = waiting
    while coming:
        there = {tag for name in job.tasks if name not in waiting for tag in tags[name]}
        coming = {name for name in waiting if all(each & there for each in wanted[name])}
        waiting = waiting - coming
    for name in sorted(waiting):
        path = child("tasks", name, "placement", "constraints")
        others = " and ".join(sorted(waiting))
        yield Problem(path, NOT_GIVEN, f"{others} wait for each other, so none can be placed first; remove a rule")


def _wanted(placement: Placement, own: list[str]) -> Iterator[set[str]]:
    """Yield a set of tags for each rule that needs an earlier container of another type with one of these tags."""
    for rule in placement.constraints:
        beside = [*rule.affinity, *([rule.cardinality] if rule.cardinality is not None and rule.min else [])]
        targets = [TagTarget.parse(text) for text in beside]
        if targets and all(target.namespace == SELF and target.tag not in own for target in targets):
            yield {target.tag for target in targets}


def _within(inner: PlacementScope, outer: PlacementScope) -> bool:
    """Return whether containers that share ``inner`` also share ``outer``."""
    return inner is outer or inner is PlacementScope.NODE
