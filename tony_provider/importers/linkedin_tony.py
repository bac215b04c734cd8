"""Import jobs of LinkedIn's TonY: its XML configuration, or a call of its client.

The XML reader rejects document types, entities and includes. Images and placement rules are converted as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from tony_provider.importers.job_source import (
    Options,
    Source,
    System,
    carry_variables,
    for_sh,
    python_call,
    read_options,
    read_text,
    source_folder,
    unpacked_environment,
)
from tony_provider.importers.key_table import BadValue, Draft, KeyPath, NotImportable, boolean, number_of, pairs, words
from tony_provider.importers.linkedin_tony_keys import (
    ADDRESSES,
    KEYS,
    OPTIONS,
    put_container_environment,
    tensorboard_directory,
)
from tony_provider.importers.yarn_terms import Rules, own_tags_in, read_expression
from tony_provider.runtime.jobspec.model import Role

_REFERENCE = re.compile(r"\$\{([^}$\s]+)\}")
_OF_THE_CLIENT = re.compile(r"\$\{(?:user|java|os|env)\.[^}$\s]+\}")
_MOST_FILLED = 20  # maximum number of references to replace in one value, as in Hadoop
_LONGEST = 1 << 16  # characters; in longer values, references are not replaced


def read_properties(text: str, source: str) -> dict[str, str]:
    """Return the properties by name. The last property with a name wins. Raises NotImportable.

    Document types and entities are rejected, because with them, a file of some hundred bytes can fill the machine's
    memory or read other files.
    """
    try:
        root = fromstring(text, forbid_dtd=True)
    except DefusedXmlException as error:
        raise NotImportable(
            f"{source}: has a document type or entities, which are not read, because they can fill the memory or open "
            "other files; write their values in the properties"
        ) from error
    except (ParseError, ValueError, RecursionError) as error:
        raise NotImportable(f"{source}: is not XML ({error})") from error
    if root.tag != "configuration":
        raise NotImportable(f"{source}: is not a Hadoop configuration: its first element is {root.tag!r}")
    if any(each.tag.endswith("}include") for each in root.iter()):
        raise NotImportable(f"{source}: includes another file, which is not read; write its properties here")
    properties = {}
    for each in root.iter("property"):
        name, value = _text(each, "name"), _text(each, "value")
        if not name:
            raise NotImportable(f"{source}: a property has no name")
        properties[name] = value
    return properties


def filled_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with references ``${name}`` replaced by their values, as in Hadoop."""
    return {name: _filled(value, properties) for name, value in properties.items()}


def _filled(value: str, properties: Mapping[str, str]) -> str:
    for _ in range(_MOST_FILLED):
        found = next((each for each in _REFERENCE.finditer(value) if each[1] in properties), None)
        if found is None or len(value) > _LONGEST:
            break
        value = f"{value[: found.start()]}{properties[found[1]]}{value[found.end() :]}"
    return value


def of_the_client(value: str) -> str | None:
    """Return the part of a value that only Hadoop's client replaces, such as ``${user.name}``, or None."""
    found = _OF_THE_CLIENT.search(value)
    return found[0] if found else None


def _text(element: Element, tag: str) -> str:
    found = element.find(tag)
    return (found.text or "").strip() if found is not None else ""


_OF_ALL = ("tony.docker.containers.image", "tony.application.docker.image")  # the second is from TonY's first versions
_ENABLED = ("tony.docker.enabled", "tony.application.docker.enabled")
_OF_TYPE = re.compile(r"tony\.docker\.([^.]+)\.image")
_MOUNTS = "tony.docker.containers.mount"
_APPLICATIONS_RULES = "tony.application.placement-spec"
_MASTER = "am"  # TonY's name for its application master in keys


# -- images ------------------------------------------------------------------------------------------------------------


def put_images(draft: Draft, known: Mapping[str, str]) -> None:
    """Carry over the image of all containers, and images of single task types."""
    images = {key: value for key, value in known.items() if key in _OF_ALL or _OF_TYPE.fullmatch(key)}
    if not images or not _is_enabled(draft, known):
        for key, value in images.items():
            draft.leave_out(key, "tony.docker.enabled is not true, so TonY uses no image", value)
        return
    of_all = next((key for key in _OF_ALL if key in images), None)
    places: list[KeyPath] = [()] if of_all else []
    if of_all:
        draft.put("docker.image", images[of_all], of_all)
    for key, value in images.items():
        found = _OF_TYPE.fullmatch(key)
        if key in _OF_ALL or found is None:
            continue
        if found[1] == _MASTER:
            places.append(("am",))
        elif (name := draft.task_type(found[1])) in draft.tasks:
            places.append(("tasks", name))
        else:
            continue  # a task type without instances
        draft.put((*places[-1], "docker", "image"), value, key)
    if mounts := known.get(_MOUNTS):
        for above in places[:1] if of_all else places:
            draft.put((*above, "docker", "mounts"), words(mounts.replace(";", ",")), _MOUNTS)


def _is_enabled(draft: Draft, known: Mapping[str, str]) -> bool:
    if (key := next((key for key in _ENABLED if key in known), None)) is None:
        return False
    try:
        return boolean(known[key])
    except BadValue as error:
        draft.leave_out(key, str(error), known[key])
        return False


# -- placement ---------------------------------------------------------------------------------------------------------


def put_placement(draft: Draft, known: Mapping[str, str]) -> None:
    """Carry over the placement rules of task types. Types without allocation tags get the application's rules."""
    names = {key.split(".")[1]: key for key in known if re.fullmatch(r"tony\.[^.]+\.instances", key)}
    tags = {draft.task_type(name): words(_own_or_alls(known, name, "allocation-tags")[1]) for name in names}
    for name in names:
        ours = draft.task_type(name)
        if ours not in draft.tasks:
            continue
        key, text = _own_or_alls(known, name, "placement-spec")
        _put_rules(draft, ours, key, _rules(draft, key, text, tags[ours]), tags)
        applications = known.get(_APPLICATIONS_RULES, "")
        if not tags[ours]:
            rules = _rules(draft, _APPLICATIONS_RULES, applications, tags[ours])
            _put_rules(draft, ours, _APPLICATIONS_RULES, rules, tags)
        _put_tags(draft, known, name, tags[ours], is_placed=bool(text or applications))


def _own_or_alls(known: Mapping[str, str], name: str, what: str) -> tuple[str, str]:
    """Return a task type's own key and its value. If there is none, return the key for all containers and its value."""
    own = f"tony.{name}.{what}"
    key = own if own in known else f"tony.containers.{what}"
    return key, known.get(key, "")


def _rules(draft: Draft, key: str, text: str, tags: list[str]) -> Rules:
    if not text:
        return Rules()
    try:
        return read_expression(text, tags)
    except BadValue as error:
        draft.leave_out(key, str(error), text)
        return Rules()


def _put_rules(draft: Draft, ours: str, key: str, rules: Rules, tags: Mapping[str, list[str]]) -> None:
    above: KeyPath = ("tasks", ours, "placement")
    for name, found in (("constraints", rules.constraints), ("attributes", rules.attributes)):
        if found:
            draft.put((*above, name), [*(draft.get((*above, name)) or []), *found], key)
    _say_names(draft, key, rules, tags)


def _put_tags(draft: Draft, known: Mapping[str, str], name: str, tags: list[str], *, is_placed: bool) -> None:
    key, ours = _own_or_alls(known, name, "allocation-tags")[0], draft.task_type(name)
    if tags and not is_placed:
        draft.leave_out(key, "TonY sends YARN only the tags of types with a placement specification", ",".join(tags))
    elif others := [tag for tag in tags if tag != ours]:
        draft.put(("tasks", ours, "placement", "tags"), others, key)


def _say_names(draft: Draft, key: str, rules: Rules, tags: Mapping[str, list[str]]) -> None:
    for tag in dict.fromkeys(own_tags_in(rules)):
        if tag in draft.tasks and tag not in tags.get(tag, []):
            draft.leave_out(key, f"here, containers of the type {tag} have this tag even without `allocation-tags`")


_CLIENT = re.compile(r"(?:--class=)?com\.linkedin\.tony\.(?:cli\.\w+|TonyClient)")
_FLAGS = ("debug", "help")
_NOTEBOOKS = "NotebookSubmitter"  # TonY's client for notebooks, which starts a server and does not wait for it
_VARIABLES = {
    "CLUSTER_SPEC": "$TONY_CLUSTER_SPEC",
    "JOB_NAME": "$TONY_TASK_TYPE",
    "TASK_INDEX": "$TONY_TASK_INDEX",
    "RANK": "$TONY_RANK",
    "WORLD": "$TONY_WORLD_SIZE",
    "INIT_METHOD": "tcp://$TONY_RENDEZVOUS",
    "SESSION_ID": "$TONY_GENERATION",
}
_INSTEAD = {
    "TASK_NUM": "count the addresses of the task's type in TONY_CLUSTER_SPEC",
    "TB_PORT": "leave out the program's own TensorBoard, write into TONY_TENSORBOARD_DIR, and set `tensorboard: true`",
}
_LISTS = ("tony.containers.envs", "tony.execution.envs", "tony.containers.resources")  # keys to which -conf appends
_DEFAULTS = {"memory": "2g", "vcores": "1", "gpus": "0"}  # values for ps and worker in tony-default.xml
_FRAMEWORKS = ("tensorflow", "pytorch", "mxnet", "horovod", "standalone")


def _knows(source: Source) -> bool:
    if source.begins_like_xml:
        return "tony." in source.text
    return bool(source.calls(_is_call))


def _is_call(given: Sequence[str]) -> bool:
    return any(_CLIENT.fullmatch(word) for word in given)


def _read(source: Source) -> Draft:
    if source.begins_like_xml:
        return _draft(read_properties(source.text, source.label), Options((), ()), source.folder)
    options = read_options(source.arguments(_is_call, "has no call of TonY's client", _after_client), flags=_FLAGS)
    if options.rest:
        raise NotImportable(f"{source.label}: {options.rest[0]!r} belongs to no option of TonY's client")
    draft = _draft(_properties(options, source.folder), options, source.folder)
    if any(word.endswith(_NOTEBOOKS) for word in source.call(_is_call) or ()):
        draft.leave_out(
            _NOTEBOOKS, "`airflow tony notebook` starts Jupyter; `airflow tony tunnel` connects to any other server"
        )
    return draft


def _after_client(given: Sequence[str]) -> list[str]:
    """Return the client's arguments, also if another tool starts the client (`gcloud … --class … -- …`)."""
    place = next(index for index, word in enumerate(given) if _CLIENT.fullmatch(word))
    after = list(given[place + 1 :])
    return after[after.index("--") + 1 :] if "--" in after else after


def _properties(options: Options, folder: Path) -> dict[str, str]:
    """Return the properties of the configuration files, overridden by the properties in the call."""
    properties: dict[str, str] = {}
    for name in options.all("conf_file"):
        properties.update(read_properties(read_text(folder / name), name))
    for each in options.all("conf"):
        key, equals, value = each.partition("=")
        if not equals:
            raise NotImportable(f"-conf {each!r} should be KEY=VALUE")
        more = key in _LISTS and properties.get(key)
        properties[key] = f"{properties[key]},{value}" if more else value
    return properties


def _draft(properties: Mapping[str, str], options: Options, folder: Path) -> Draft:
    draft = Draft()
    properties = filled_in(properties)
    known = {key: value for key, value in properties.items() if key.startswith("tony.") and value != ""}
    if others := sorted(key for key in properties if not key.startswith("tony.")):
        draft.leave_out(f"{len(others)} keys of Hadoop, such as {others[0]}", ADDRESSES)
    for key, value in known.items():
        if reference := of_the_client(value):
            draft.leave_out(key, f"{reference} is replaced only by Hadoop's client; write its value instead", value)
    framework = _framework(known)
    draft.put("framework", framework, "tony.application.framework")
    _task_types(draft, known, framework)
    absent = {key: value for key, value in known.items() if _is_of_absent(draft, key)}
    _say_absent(draft, known, absent)
    KEYS.carry_all(draft, {key: value for key, value in known.items() if key not in absent})
    _services(draft)
    put_images(draft, known)
    put_placement(draft, known)
    _tensorboard_container(draft, known)
    _options(draft, options)
    _commands(draft, known, options, folder)
    draft.share_files()
    carry_variables(draft, folder, _VARIABLES, _INSTEAD)
    return draft


def _framework(known: Mapping[str, str]) -> str:
    named = known.get("tony.application.framework", "tensorflow").strip().lower()
    if named not in _FRAMEWORKS:
        raise NotImportable(
            f"tony.application.framework: {named!r} is not one of TonY's frameworks: {', '.join(_FRAMEWORKS)}"
        )
    return named


def _task_types(draft: Draft, known: Mapping[str, str], framework: str) -> None:
    for key, value in known.items():
        found = re.fullmatch(r"tony\.([^.]+)\.instances", key)
        if found is None or found[1] == "tensorboard" or number_of(key, value) <= 0:
            continue
        if framework == "mxnet" and found[1] == "scheduler":
            draft.leave_out(key, "MXNet's scheduler runs next to rank 0", value)
            continue
        if framework == "horovod" and found[1] == "driver":
            draft.leave_out(key, "no driver: the rendezvous runs next to rank 0", value)
            continue
        name = draft.task_type(found[1])
        draft.put(("tasks", name, "instances"), number_of(key, value), key)
        if framework == "mxnet" and found[1] == "server":
            draft.put(("tasks", name, "role"), Role.PS.value, key)
    if not draft.tasks:
        draft.put("framework", "standalone", "tony.application.single-node")
        draft.put("tasks.worker.instances", 1, "tony.application.single-node")
        draft.leave_out(
            "tony.<type>.instances", "no type has instances: TonY runs the program in its master, here a worker runs it"
        )


def _is_of_absent(draft: Draft, key: str) -> bool:
    """Return whether a key belongs to a task type without instances. TonY's defaults contain such keys."""
    found = re.fullmatch(
        r"tony\.([^.]+)\.(memory|vcores|gpus|resources|command|node-label|depends-on|alt-placement-spec)", key
    )
    return bool(
        found and KEYS.find(key) is not None and key not in KEYS.rules and draft.task_type(found[1]) not in draft.tasks
    )


def _say_absent(draft: Draft, known: Mapping[str, str], absent: Mapping[str, str]) -> None:
    """List keys of task types without a number of instances, unless the values are TonY's defaults."""
    for key, value in absent.items():
        _, name, last = key.split(".")
        if f"tony.{name}.instances" not in known and value != _DEFAULTS.get(last):
            draft.leave_out(
                key,
                f"tony.{name}.instances is not given, so the job has no {name}, as with TonY since June 2019 (older "
                "versions started one ps and one worker)",
                value,
            )


def _services(draft: Draft) -> None:
    """Give services the role sidecar. Tasks that depend on a service wait until it has started.

    A service is a task type on which others depend but which TonY does not wait for, because it never ends.
    """
    for name, task in draft.tasks.items():
        if task.get("role") == Role.ONCE.value and task.get("decides") is False:
            task["role"] = Role.SIDECAR.value
            del task["decides"]
        if task.get("role") == Role.SIDECAR.value:
            for other in draft.tasks.values():
                if name in other.get("after", {}):
                    other["after"][name] = "started"


def _tensorboard_container(draft: Draft, known: Mapping[str, str]) -> None:
    if draft.get("tensorboard") is None:
        return
    found = {name: known.get(f"tony.tensorboard.{name}") for name in ("memory", "vcores")}
    if size := {name: value for name, value in found.items() if value}:
        draft.put("tensorboard", size, "tony.tensorboard.memory")


def _options(draft: Draft, options: Options) -> None:
    OPTIONS.carry_options(draft, options.given, "-", "not an option of TonY's client")
    put_container_environment(draft, "-container_env", pairs(options.all("container_env")))
    shell_environment = pairs(options.all("shell_env"))
    draft.put_environment((), shell_environment, "-shell_env", " ")  # overrides -container_env
    if called := options.last("appname") or options.last("app_name"):
        draft.put("name", called, "-appname")
    if (log_dir := options.last("sidecar_tensorboard_log_dir")) is not None:
        tensorboard_directory(draft, "-sidecar_tensorboard_log_dir", log_dir, ())


def _commands(draft: Draft, known: Mapping[str, str], options: Options, folder: Path) -> None:
    """Set the command of each task type: its own, or the one from ``-executes``, as TonY does."""
    everybody = known.get("tony.containers.command")
    sources = options.last("src_dir")
    inside = "" if sources is None else source_folder(draft, sources, folder, "-src_dir")
    if environment := options.last("python_venv"):
        unpacked_environment(draft, environment)
    if executes := options.last("executes"):
        everybody = python_call(
            executes if sources is None else executes.removeprefix(f"{sources.rstrip('/')}/"),
            arguments=options.last("task_params"),
            python=options.last("python_binary_path"),
            in_venv=bool(environment),
            top="../" if inside else "",
        )
    for name, task in draft.tasks.items():
        if everybody:
            task.setdefault("command", for_sh(everybody))
        draft.no_command[name] = "TonY reads the command from -executes of its call, or from tony.<type>.command"
        if inside and "command" in task:
            task["command"] = f"cd {inside} && {task['command']}"
        if "ray start" in task.get("command", ""):
            draft.leave_out(
                f"tony.{name}.command", "starts Ray itself; `framework: ray` does this, with the chief as Ray's head"
            )


SYSTEM = System(
    name="tony",
    title="TonY",
    page="from-tony",
    takes="an XML configuration, a call of TonY's client, or the client's options (-conf KEY=VALUE …)",
    keys=(KEYS, OPTIONS),
    knows=_knows,
    read=_read,
    is_call=_is_call,
)
