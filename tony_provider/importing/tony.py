"""TonY: its configuration in XML, a list of ``-conf`` options, or a whole call of its client."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tony_provider.importing.draft import Draft
from tony_provider.importing.hadoop_xml import filled_in, of_the_client, read_properties
from tony_provider.importing.imported import NotImportable
from tony_provider.importing.options import Options, read_options
from tony_provider.importing.shell_call import for_sh, python_call, source_folder, unpacked_environment
from tony_provider.importing.shell_variables import say_unfilled
from tony_provider.importing.source import Source, read_text
from tony_provider.importing.system import System
from tony_provider.importing.tony_keys import (
    ADDRESSES,
    KEYS,
    OPTIONS,
    put_container_environment,
    put_environment,
    tensorboard_directory,
)
from tony_provider.importing.tony_places import put_images, put_placement
from tony_provider.importing.values import number_of, pairs
from tony_provider.importing.variables import carry_variables
from tony_provider.runtime.spec.model import Role

_CLIENT = re.compile(r"(?:--class=)?com\.linkedin\.tony\.(?:cli\.\w+|TonyClient)")
_FLAGS = ("debug", "help")
_NOTEBOOKS = "NotebookSubmitter"  # its client for a server that is not waited for
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
_LISTS = ("tony.containers.envs", "tony.execution.envs", "tony.containers.resources")  # -conf appends to these
_DEFAULTS = {"memory": "2g", "vcores": "1", "gpus": "0"}  # of ps and worker, in tony-default.xml
_FRAMEWORKS = ("tensorflow", "pytorch", "mxnet", "horovod", "standalone")


def _knows(source: Source) -> bool:
    if source.begins_like_xml:
        return "tony." in source.text
    return bool(source.calls(_is_call))


def _is_call(given: Sequence[str]) -> bool:
    return any(_CLIENT.fullmatch(word) for word in given)


def _read(source: Source) -> Draft:
    if source.begins_like_xml:
        return _draft(read_properties(source.text, source.told), None, source.folder)
    call = source.call(_is_call)
    given = _after_client(call) if call is not None else list(source.words)
    if not given:
        raise NotImportable(f"{source.told}: has no call of TonY's client")
    options = read_options(given, flags=_FLAGS)
    if options.rest:
        raise NotImportable(f"{source.told}: {options.rest[0]!r} belongs to no option of TonY's client")
    draft = _draft(_properties(options, source.folder), options, source.folder)
    say_unfilled(draft, source, _is_call)
    if call is not None and any(word.endswith(_NOTEBOOKS) for word in call):
        draft.leave(
            _NOTEBOOKS, "`airflow tony notebook` starts Jupyter; `airflow tony tunnel` leads to any other server"
        )
    return draft


def _after_client(given: Sequence[str]) -> list[str]:
    """What the client is given, also behind the options of a tool that starts it (`gcloud … --class … -- …`)."""
    place = next(index for index, word in enumerate(given) if _CLIENT.fullmatch(word))
    after = list(given[place + 1 :])
    return after[after.index("--") + 1 :] if "--" in after else after


def _properties(options: Options, folder: Path) -> dict[str, str]:
    """What the call's file says, and over it its own words."""
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


def _draft(properties: Mapping[str, str], options: Options | None, folder: Path) -> Draft:
    draft = Draft()
    properties = filled_in(properties)
    known = {key: value for key, value in properties.items() if key.startswith("tony.") and value != ""}
    if others := sorted(properties.keys() - {key for key in properties if key.startswith("tony.")}):
        draft.leave(f"{len(others)} keys of Hadoop, such as {others[0]}", ADDRESSES)
    for key, value in known.items():
        if reference := of_the_client(value):
            draft.leave(key, f"{reference} is filled in by Hadoop's client, and by nobody here", value)
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
    if options is not None:
        _options(draft, options)
    _commands(draft, known, options, folder)
    for each in ("files", "archives"):
        draft.share(each)
    carry_variables(draft, folder, _VARIABLES, _INSTEAD)
    return draft


def _framework(known: Mapping[str, str]) -> str:
    named = known.get("tony.application.framework", "tensorflow").strip().lower()
    if named not in _FRAMEWORKS:
        raise NotImportable(
            f"tony.application.framework: {named!r} is none of TonY's, which are {', '.join(_FRAMEWORKS)}"
        )
    return named


def _task_types(draft: Draft, known: Mapping[str, str], framework: str) -> None:
    for key, value in known.items():
        found = re.fullmatch(r"tony\.([^.]+)\.instances", key)
        if found is None or found[1] == "tensorboard" or number_of(key, value) <= 0:
            continue
        if framework == "mxnet" and found[1] == "scheduler":
            draft.leave(key, "MXNet's scheduler runs beside rank 0", value)
            continue
        if framework == "horovod" and found[1] == "driver":
            draft.leave(key, "no driver: the rendezvous runs beside rank 0", value)
            continue
        name = draft.task_type(found[1])
        draft.put(("tasks", name, "instances"), number_of(key, value), key)
        if framework == "mxnet" and found[1] == "server":
            draft.put(("tasks", name, "role"), Role.PS.value, key)
    if not draft.tasks:
        draft.put("framework", "standalone", "tony.application.single-node")
        draft.put("tasks.worker.instances", 1, "tony.application.single-node")
        draft.leave("tony.<type>.instances", "no type has one: TonY runs the program in its master, here a worker does")


def _is_of_absent(draft: Draft, key: str) -> bool:
    """Whether a key is of a task type that has no instances: TonY's defaults have some of these."""
    found = re.fullmatch(
        r"tony\.([^.]+)\.(memory|vcores|gpus|resources|command|node-label|depends-on|alt-placement-spec)", key
    )
    return bool(
        found and KEYS.find(key) is not None and key not in KEYS.rules and draft.task_type(found[1]) not in draft.tasks
    )


def _say_absent(draft: Draft, known: Mapping[str, str], absent: Mapping[str, str]) -> None:
    """Name what is asked for a type whose number nothing says; TonY's own defaults are nobody's wish."""
    for key, value in absent.items():
        _, name, last = key.split(".")
        if f"tony.{name}.instances" not in known and value != _DEFAULTS.get(last):
            draft.leave(
                key,
                f"tony.{name}.instances is not given, so there is no {name} here, as with TonY since June 2019 "
                "(before, one ps and one worker were the default)",
                value,
            )


def _services(draft: Draft) -> None:
    """Those that others wait for and that TonY does not wait for itself never end: they have started, and go on."""
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
    size = {name: value for name, value in found.items() if value}
    if size:
        draft.put("tensorboard", size, "tony.tensorboard.memory")


def _options(draft: Draft, options: Options) -> None:
    for name, value in options.given:
        if not OPTIONS.carry(draft, name, value):
            draft.leave(f"-{name}", f"no option of TonY's client{OPTIONS.hint(name)}", value)
    put_container_environment(draft, "-container_env", pairs(options.all("container_env")))
    put_environment(draft, "-shell_env", pairs(options.all("shell_env")))  # over those of the container
    if called := options.last("appname") or options.last("app_name"):
        draft.put("name", called, "-appname")
    if (log_dir := options.last("sidecar_tensorboard_log_dir")) is not None:
        tensorboard_directory(draft, "-sidecar_tensorboard_log_dir", log_dir, ())


def _commands(draft: Draft, known: Mapping[str, str], options: Options | None, folder: Path) -> None:
    """TonY gives ``-executes`` to every type that has no command of its own."""
    everybody = known.get("tony.containers.command")
    sources = options.last("src_dir") if options is not None else None
    inside = "" if sources is None else source_folder(draft, sources, folder, "-src_dir")
    environment = options.last("python_venv") if options is not None else None
    if environment:
        unpacked_environment(draft, environment)
    if options is not None and (executes := options.last("executes")):
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
        draft.no_command[name] = "TonY takes it from -executes of its call, or from tony.<type>.command"
        if inside and "command" in task:
            task["command"] = f"cd {inside} && {task['command']}"
        if "ray start" in task.get("command", ""):
            draft.leave(
                f"tony.{name}.command", "starts Ray by itself; `framework: ray` does, with the chief as its head"
            )


SYSTEM = System(
    name="tony",
    title="TonY",
    page="from-tony",
    takes="a configuration in XML, a call of its client, or its options (-conf KEY=VALUE …)",
    keys=(KEYS, OPTIONS),
    knows=_knows,
    read=_read,
)
