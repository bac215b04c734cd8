"""Import definitions of YARN services (JSON).

Components become task types with their commands, files, images and placement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tony_provider.importers.job_source import Source, System, for_sh
from tony_provider.importers.key_table import (
    BadValue,
    Draft,
    KeyPath,
    Keys,
    NotImportable,
    boolean,
    carried_by,
    handled_elsewhere,
    left_out,
    listed,
    mapped_to,
    mapping,
    memory,
    milliseconds,
    nested_mapping,
    number,
    positive_or_none,
    seconds,
)
from tony_provider.importers.yarn_terms import ANY_NUMBER, ENTRY_POINT, apart, beside, counted, on_hdfs, take_image
from tony_provider.runtime.common import quantities

_KINDS = ("AFFINITY", "ANTI_AFFINITY", "AFFINITY_WITH_CARDINALITY")
_FIELDS = (
    "name",
    "type",
    "scope",
    "target_tags",
    "node_attributes",
    "node_partitions",
    "min_cardinality",
    "max_cardinality",
)


def put_placement(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    """Carry over the constraints of a component's placement policy one by one; list those without a counterpart."""
    constraints = value.get("constraints") if isinstance(value, Mapping) else None
    if not isinstance(constraints, list):
        raise BadValue("should be a mapping with a list of `constraints`")
    for index, each in enumerate(constraints):
        constraint_key = f"{key}.constraints[{index}]"
        try:
            _constraint(draft, constraint_key, nested_mapping(each), names[0])
        except BadValue as error:
            draft.leave_out(constraint_key, str(error), each)


def _constraint(draft: Draft, key: str, given: Mapping[str, Any], component: str) -> None:
    kind, scope = str(given.get("type", "")).upper(), str(given.get("scope", "")).lower()
    if kind not in _KINDS or scope not in ("node", "rack"):
        raise BadValue(f"should have a type, one of {', '.join(_KINDS)}, and a scope, NODE or RACK")
    for name in given:
        if name not in _FIELDS:
            draft.leave_out(f"{key}.{name}", "unknown key", given[name])
    ours = draft.task_type(component)
    # Our tag is the task type's name. The tag in YARN services is the component's name.
    tags = [draft.known_type(each) for each in _listed(given, "target_tags")]
    _put_rules(draft, key, ours, _rules(given, kind, scope, tags, ours))
    _put_attributes(draft, key, ours, kind, nested_mapping(given, "node_attributes"))
    _put_label(draft, key, ours, _listed(given, "node_partitions"))


def _rules(given: Mapping[str, Any], kind: str, scope: str, tags: list[str], ours: str) -> list[dict[str, Any]]:
    if not tags:
        return []
    if kind == "AFFINITY":
        return [beside(tags, scope)]
    if kind == "ANTI_AFFINITY":
        return [apart(tags, scope)]
    if len(tags) > 1:
        raise BadValue("counts containers of several components together; a rule of `placement` counts one component")
    least, most = given.get("min_cardinality"), given.get("max_cardinality")
    return list(counted(tags[0], scope, number(least or 0), number(ANY_NUMBER if most is None else most), [ours]))


def _listed(given: Mapping[str, Any], name: str) -> list[str]:
    found = given.get(name) or []
    return [str(each) for each in found] if isinstance(found, list) else [str(found)]


def _put_rules(draft: Draft, key: str, ours: str, rules: list[dict[str, Any]]) -> None:
    place: KeyPath = ("tasks", ours, "placement", "constraints")
    for rule in rules:
        draft.put(place, [*(draft.get(place) or []), rule], key.rpartition(".")[0])


def _put_attributes(draft: Draft, key: str, ours: str, kind: str, attributes: Mapping[str, Any]) -> None:
    for name, values in attributes.items():
        found = values if isinstance(values, list) else [values]
        if kind == _KINDS[2] or len(found) != 1:
            draft.leave_out(
                f"{key}.node_attributes.{name}", "an attribute has one value here, and cannot be counted", values
            )
            continue
        sign = "=" if kind == "AFFINITY" else "!="
        draft.add(("tasks", ours, "placement", "attributes"), f"{name}{sign}{found[0]}", f"{key}.node_attributes")


def _put_label(draft: Draft, key: str, ours: str, partitions: list[str]) -> None:
    """Carry over the node partitions of a constraint of any type as a node label."""
    if len(partitions) == 1:
        draft.put(("tasks", ours, "node_label"), partitions[0], f"{key}.node_partitions")
    elif partitions:
        draft.leave_out(f"{key}.node_partitions", "a container has one `node_label`; YARN uses the first", partitions)


_OF_ALL = {  # keys of a service that are defaults for its components -> our keys
    "launch_command": "command",
    "resource": "vcores",
    "number_of_containers": "instances",
}
_CONSTANT = re.compile(
    r"\$\{(?:(?:SERVICE|COMPONENT)_[A-Z_]+|USER|DOMAIN|THIS_HOST|CONTAINER_ID|CLUSTER_[A-Z_]+|[A-Z0-9_-]+_(?:IP|HOST))\}"
)
# escapes in commands, because YARN writes a command between double quotes into a bash script
_ESCAPED = re.compile(r"\\([$`\"\\])")
_NOT_WRITTEN = "files are not generated from properties; write the file yourself, and name it in `files`"


def _put_resource(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    for name, given in mapping(value).items():
        about = given if isinstance(given, Mapping) else {"value": given}
        if name == quantities.GPU:
            if count := positive_or_none(about.get("value")):
                draft.put("tasks.<type>.gpus", count, key, names)
        else:
            amount = f"{number(about.get('value'))}{about.get('unit') or ''}"
            draft.put((*draft.place(names), "resources", name), amount, key)


def _environment(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    above = draft.place(names)
    for name, text in draft.put_environment(above, take_image(draft, above, key, mapping(value)), key).items():
        _say_constants(draft, f"{key}.{name}", text)


def _command(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    text = _ESCAPED.sub(r"\1", str(value))
    draft.put("tasks.<type>.command", for_sh(text), key, names)
    _say_constants(draft, key, text)


def _say_constants(draft: Draft, key: str, text: str) -> None:
    if found := _CONSTANT.findall(text):
        draft.leave_out(
            key,
            f"{found[0]} is replaced only by YARN services, not here; TONY_TASK_INDEX, TONY_CLUSTER_SPEC and "
            "other variables identify a task and its host",
        )


def _dependencies(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    for other in listed(value):
        draft.put("tasks.<type>.after.<type>", "ready", key, [names[0], str(other)])


def _readiness(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    properties = nested_mapping(value, "properties")
    kind = str(value.get("type", "DEFAULT")).upper() if isinstance(value, Mapping) else ""
    if kind == "PORT" and "port" in properties:
        draft.put("tasks.<type>.ready", {"port": number(properties["port"])}, key, names)
    elif kind == "HTTP" and "url" in properties:
        url = str(properties["url"]).replace("${THIS_HOST}", "localhost")
        draft.put("tasks.<type>.ready", {"command": f"curl -fs '{url}'"}, key, names)
        draft.leave_out(key, "the task's node requests the page with curl, which must be installed there", value)
    elif kind != "DEFAULT":
        draft.leave_out(key, "is not a check of YARN services: DEFAULT, PORT with a port, HTTP with a url", value)


def _restarts(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    policy = str(value).upper()
    if policy == "NEVER":
        draft.put("tasks.<type>.restart", "never", key, names)
    elif policy == "ALWAYS":
        draft.leave_out(key, "a task that ends with exit code 0 has succeeded, and does not restart", value)
    elif policy != "ON_FAILURE":
        draft.leave_out(key, "is not ALWAYS, ON_FAILURE or NEVER", value)


def _privileged(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    if boolean(value):
        draft.put((*draft.place(names), "docker", "privileged"), True, key)


def _files(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    """Carry over static files and archives, but not files that YARN services write from properties."""
    for each in listed(value):
        about = each if isinstance(each, Mapping) else {}
        kind, source = str(about.get("type", "")).upper(), about.get("src_file")
        target = str(about.get("dest_file") or source or "").lstrip("/")
        if kind in ("STATIC", "ARCHIVE") and source:
            ours = "files" if kind == "STATIC" else "archives"
            draft.add((*draft.place(names), ours), f"{on_hdfs(draft, key, source)}::resources/{target}", key)
        else:
            draft.leave_out(f"{key} {about.get('dest_file', '')}".rstrip(), f"{kind or 'no type'}: {_NOT_WRITTEN}")


def _budget(value: Any) -> int | None:
    return number(value) if number(value) >= 0 else None


_PROPERTIES = {
    "yarn.service.am-resource.memory": mapped_to("am.memory", memory),
    "yarn.service.am-restart.max-attempts": mapped_to("am.attempts", positive_or_none),
    "yarn.service.container-failure.retry.max": mapped_to("restart.budget", _budget),
    "yarn.service.container-failure.retry-interval-ms": mapped_to("restart.backoff", milliseconds),
    "yarn.service.container-failure.validity-interval-ms": mapped_to("restart.window", milliseconds),
    "yarn.service.node-blacklist.threshold": mapped_to("restart.node_losses", number),
    **handled_elsewhere({"docker.network": "docker.network"}),
}

KEYS = Keys(
    {
        **handled_elsewhere(
            {
                **_OF_ALL,
                "artifact": "docker.image",
                "components": "tasks",
                "configuration.properties": "restart",
                "component.<type>.name": "tasks",
                "component.<type>.artifact": "tasks.<type>.docker.image",
                "component.<type>.configuration.properties": "restart",
            }
        ),
        "name": mapped_to("name"),
        "queue": mapped_to("queue"),
        "lifetime": mapped_to("timeouts.lifetime", seconds),
        "version": left_out("a job has no version; `name` may contain it"),
        "description": left_out("a job has no description; the DAG's `doc_md` may contain it"),
        **dict.fromkeys(
            ("quicklinks", "component.<type>.quicklinks"), left_out("the job's page has the addresses of its tasks")
        ),
        "kerberos_principal": left_out("`kerberos` of the connection", "kerberos"),
        "docker_client_config": mapped_to("docker.client_config"),
        "placement_policy": left_out("no field of a service: each component has its own"),
        **dict.fromkeys(
            (
                "id",
                "launch_time",
                "number_of_running_containers",
                "state",
                "uri",
                "dependencies",
                "component.<type>.state",
                "component.<type>.containers",
                "component.<type>.decommissioned_instances",
            ),
            left_out("describes a running service; a definition does not need this"),
        ),
        "configuration.env": carried_by(_environment, "env"),
        "configuration.files": carried_by(_files, "files"),
        "component.<type>.number_of_containers": mapped_to("tasks.<type>.instances", number),
        "component.<type>.launch_command": carried_by(_command, "tasks.<type>.command"),
        "component.<type>.resource.cpus": mapped_to("tasks.<type>.vcores", number),
        "component.<type>.resource.memory": mapped_to("tasks.<type>.memory", memory),
        "component.<type>.resource.additional": carried_by(_put_resource, "tasks.<type>.resources"),
        "component.<type>.resource.profile": left_out("profiles of the cluster are not read; give memory and vcores"),
        "component.<type>.dependencies": carried_by(_dependencies, "tasks.<type>.after"),
        "component.<type>.readiness_check": carried_by(_readiness, "tasks.<type>.ready"),
        "component.<type>.restart_policy": carried_by(_restarts, "tasks.<type>.restart"),
        "component.<type>.configuration.env": carried_by(_environment, "tasks.<type>.env"),
        "component.<type>.configuration.files": carried_by(_files, "tasks.<type>.files"),
        "component.<type>.placement_policy": carried_by(put_placement, "tasks.<type>.placement"),
        "component.<type>.run_privileged_container": carried_by(_privileged, "tasks.<type>.docker.privileged"),
    }
)
PROPERTIES = Keys(_PROPERTIES)


def _knows(source: Source) -> bool:
    plain = source.document
    return plain is not None and isinstance(plain.get("components"), list)


def _read(source: Source) -> Draft:
    plain = source.document
    if plain is None or not isinstance(plain.get("components"), list):
        raise NotImportable(f"{source.label}: is not a service definition: a JSON mapping with a list of `components`")
    draft = Draft()
    draft.put("framework", "standalone", "components")
    components = [each for each in plain["components"] if _is_there(draft, plain, each)]
    for each in components:
        draft.put(("tasks", draft.service_type(each["name"]), "instances"), 1, "number_of_containers")
    KEYS.carry_all(draft, plain)
    for each in components:
        whole = {**{name: plain[name] for name in _OF_ALL if name in plain}, **each}
        KEYS.carry_all(draft, {"component": {each["name"]: whole}})
        _properties(draft, each, (each["name"],))
    _properties(draft, plain, ())
    _artifacts(draft, plain, components)
    draft.share_files()
    _waits(draft)
    return draft


def _is_there(draft: Draft, plain: Mapping[str, Any], component: object) -> bool:
    if not isinstance(component, Mapping) or not isinstance(component.get("name"), str) or not component["name"]:
        draft.leave_out("components", "one of the components has no name", component)
        return False
    name = component["name"]
    if str(nested_mapping(component, "artifact").get("type", "")).upper() == "SERVICE":
        draft.leave_out(f"component.{name}", "is another service; import it by itself, or have a DAG run both")
        return False
    count = component.get("number_of_containers", plain.get("number_of_containers", 1))
    if str(count) == "0":
        draft.leave_out(f"component.{name}", "has no container, but a task type needs at least one", count)
        return False
    return True


def _properties(draft: Draft, about: Mapping[str, Any], names: Sequence[str]) -> None:
    for name, value in nested_mapping(about, "configuration", "properties").items():
        if name == "docker.network":
            draft.put((*draft.place(names), "docker", "network"), value, name)
        elif not PROPERTIES.carry(draft, name, value):
            draft.leave_out(name, "no key of a job specification corresponds to this property", value)


def _artifacts(draft: Draft, plain: Mapping[str, Any], components: Sequence[Mapping[str, Any]]) -> None:
    """Carry over images. The service's image applies to components without an artifact, but not to the master."""
    shared = nested_mapping(plain, "artifact")
    if _image(shared) is not None:
        draft.put("docker.image", _image(shared), "artifact")
        draft.put("am.docker", False, "artifact")
    for each in components:
        above: KeyPath = ("tasks", draft.task_type(each["name"]))
        key = f"component.{each['name']}.artifact"
        own = nested_mapping(each, "artifact")
        artifact = own or shared
        if (where := artifact.get("id")) and _kind(artifact) == "TARBALL":
            draft.add((*above, "archives"), f"{on_hdfs(draft, key, where)}::lib", key)
        if own and _image(own) is not None:
            draft.put((*above, "docker", "image"), _image(own), key)
        elif own and _image(shared) is not None:
            draft.put((*above, "docker"), False, key)
        if _image(artifact) is not None:
            _entry_point(draft, above[1], key, plain, each)


def _kind(artifact: Mapping[str, Any]) -> str:
    return str(artifact.get("type") or "DOCKER").upper()


def _image(artifact: Mapping[str, Any]) -> Any:
    return artifact.get("id") or None if _kind(artifact) == "DOCKER" else None


def _entry_point(draft: Draft, name: str, key: str, plain: Mapping[str, Any], component: Mapping[str, Any]) -> None:
    """Record that the image's entry point is unknown. Drop a command that has only arguments for the entry point."""
    env = {**nested_mapping(plain, "configuration", "env"), **nested_mapping(component, "configuration", "env")}
    if str(env.get(ENTRY_POINT, "")).lower() == "true":
        given = draft.tasks[name].pop("command", None)
        if given is not None:
            why = "these are arguments of the image's own entry point, not a command"
            draft.leave_out(f"{key} {ENTRY_POINT}", why, given)
    draft.no_command[name] = "the component runs its image's own entry point, which is unknown here"


def _waits(draft: Draft) -> None:
    """If a component has no readiness check, make dependent tasks wait only for its start.

    YARN considers such a component ready when it has an address, which is about when it has started.
    """
    draft.remove_absent_dependencies()
    for task in draft.tasks.values():
        for other in task.get("after", {}):
            if "ready" not in draft.tasks[other]:
                task["after"][other] = "started"
    draft.report_servers("component.{ours}")


SYSTEM = System(
    name="yarn-service",
    title="YARN services",
    page="from-yarn-services",
    takes="a service's definition in JSON",
    keys=(KEYS, PROPERTIES),
    knows=_knows,
    read=_read,
)
