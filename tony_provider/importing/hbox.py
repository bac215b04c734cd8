"""Hbox, first called XLearning: the arguments of its submit command, by themselves or in a shell script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from tony_provider.importing.draft import Draft
from tony_provider.importing.hbox_keys import FRAMEWORKS, KEYS, OPTIONS, SAME_AS_OPTION, input_name, path_and_name
from tony_provider.importing.imported import NotImportable
from tony_provider.importing.options import Options, read_options
from tony_provider.importing.shell_variables import say_unfilled
from tony_provider.importing.source import Source
from tony_provider.importing.system import System
from tony_provider.importing.values import memory, number_of, truth
from tony_provider.importing.variables import carry_variables

_PROGRAMS = ("hbox-submit", "xl-submit", "hbox-submit.sh", "xl-submit.sh")
_VARIABLES = {
    "TF_CLUSTER_DEF": "$TONY_CLUSTER_SPEC",
    "TF_ROLE": "$TONY_TASK_TYPE",
    "TF_INDEX": "$TONY_TASK_INDEX",
    "INDEX": "$TONY_TASK_INDEX",
    "RANK": "$TONY_RANK",
    "WORLD_SIZE": "$TONY_WORLD_SIZE",
    "INIT_METHOD": "tcp://$TONY_RENDEZVOUS",
    "LIGHTGBM_NUM_MACHINE": "$TONY_WORLD_SIZE",
    "LIGHTGBM_LOCAL_LISTEN_PORT": "$TONY_PORT",
    "LIGHTLDA_ROLE": "$TONY_TASK_TYPE",
    "LIGHTLDA_RANK": "$TONY_TASK_INDEX",
}
_INSTEAD = {
    **dict.fromkeys(
        ("LIGHTLDA_WORKER_NUM", "LIGHTLDA_SERVER_NUM", "LIGHTLDA_SERVER_ENDPOINT"),
        "read the addresses of workers and servers in TONY_CLUSTER_SPEC",
    ),
    "INPUT_FILE_LIST": "read the list in the file that TONY_INPUT_<NAME> names",
}
_INTERACTIVE = ("vpc", "digits")
_WITH_SERVERS = (
    "tensorflow",
    "tensor2tensor",
    "mxnet",
    "distlightlda",
    "lightlda",
    "xflow",
    "xdl",
)  # to others, ps are not there


def _knows(source: Source) -> bool:
    return bool(source.calls(_is_call))


def _is_call(given: Sequence[str]) -> bool:
    return PurePosixPath(given[0]).name in _PROGRAMS


def _read(source: Source) -> Draft:
    call = source.call(_is_call)
    given = list(call[1:]) if call is not None else list(source.words)
    if not given:
        raise NotImportable(f"{source.told}: has no call of hbox-submit or xl-submit")
    options = _with_both_names(read_options(given))
    settings = {_key(name): value for name, _, value in (each.partition("=") for each in options.all("conf"))}
    given_last = {name: value for name, value in options.given if name not in ("conf", "input", "output")}
    said = {option: settings[key] for key, option in SAME_AS_OPTION.items() if key in settings}
    said = {**said, **given_last}
    draft = Draft()
    kind = said.get("app-type", "hbox").lower()
    if kind in _INTERACTIVE:
        raise NotImportable(f"--app-type {kind}: containers to log in to are not run")
    draft.put("framework", FRAMEWORKS.get(kind, "standalone"), "--app-type")
    _task_types(draft, said, kind)
    _servers(draft)
    for name, value in [
        *said.items(),
        *((name, value) for name, value in options.given if name in ("input", "output")),
    ]:
        if not OPTIONS.carry(draft, name, value):
            draft.leave(f"--{name}", f"no option of Hbox{OPTIONS.hint(name)}", value)
    for key, value in settings.items():
        if key not in SAME_AS_OPTION and not KEYS.carry(draft, key, value):
            draft.leave(f"--conf {key}", f"unknown key{KEYS.hint(key)}", value)
    _image(draft, settings)
    _ports(draft, settings)
    _commands(draft, options, kind)
    say_unfilled(draft, source, _is_call)
    carry_variables(draft, source.folder, _VARIABLES, _INSTEAD)
    return draft


def _key(name: str) -> str:
    """XLearning's keys are Hbox's, with another beginning."""
    return f"hbox.{name.removeprefix('xlearning.')}" if name.startswith("xlearning.") else name


def _with_both_names(options: Options) -> Options:
    """Options have a short name too, such as appName for app-name."""
    short = {re.sub(r"-(\w)", lambda found: found[1].upper(), name): name for name in OPTIONS}
    return Options([(short.get(name, name), value) for name, value in options.given], options.rest)


def _task_types(draft: Draft, said: dict[str, str], kind: str) -> None:
    workers = number_of("--worker-num", said.get("worker-num", "1"))
    servers = number_of("--ps-num", said.get("ps-num", "0"))
    if servers > 0 and kind not in _WITH_SERVERS:
        draft.leave("--ps-num", f"Hbox starts no servers for --app-type {kind}", servers)
        servers = 0
    if draft.get("framework") == "tensorflow" and "chiefworker-memory" in said and workers > 1:
        draft.put("tasks.chief.memory", memory(said["chiefworker-memory"]), "--chiefworker-memory")
        _sized_like_workers(draft, "chief", said)
        workers -= 1
    if draft.get("framework") == "mpi":
        draft.put("tasks.chief.memory", memory(said.get("worker-memory", "1024")), "--worker-memory")
        _sized_like_workers(draft, "chief", said)
        workers -= 1
    evaluator = draft.get("framework") == "tensorflow" and truth(said.get("tf-evaluator", "false")) and workers > 1
    if evaluator:  # one of the workers to Hbox
        workers -= 1
    if workers > 0:
        draft.put("tasks.worker.instances", workers, "--worker-num")
        draft.put("tasks.worker.memory", 1024, "--worker-memory")
    if servers > 0:
        draft.put("tasks.ps.instances", servers, "--ps-num")
        draft.put("tasks.ps.memory", 1024, "--ps-memory")
    if evaluator:
        size = said.get("evaluatorworker-memory") or said.get("worker-memory") or "1024"
        draft.put("tasks.evaluator.memory", memory(size), "--evaluatorworker-memory")
        _sized_like_workers(draft, "evaluator", said)


def _servers(draft: Draft) -> None:
    """Parameter servers are those of TensorFlow and MXNet; to others they are workers that only serve."""
    framework, servers = draft.get("framework"), draft.tasks.get("ps")
    if framework == "mxnet" and servers is None:
        draft.put("framework", "standalone", "--app-type")
    elif framework == "generic" and servers is not None:
        draft.put("tasks.ps.role", "worker", "--ps-num")
        draft.put("tasks.ps.decides", False, "--ps-num")


def _sized_like_workers(draft: Draft, name: str, said: dict[str, str]) -> None:
    if "worker-cores" in said:
        draft.put(("tasks", name, "vcores"), number_of("--worker-cores", said["worker-cores"]), "--worker-cores")
    if number_of("--worker-gpus", said.get("worker-gpus", "0")) > 0:
        draft.put(("tasks", name, "gpus"), number_of("--worker-gpus", said["worker-gpus"]), "--worker-gpus")


def _image(draft: Draft, settings: dict[str, str]) -> None:
    """Of all containers but the master. In some versions its registry stands by itself."""
    host, port = settings.get("hbox.docker.registry.host"), settings.get("hbox.docker.registry.port")
    image = settings.get("hbox.docker.image")
    if image and host:
        image = f"{host}:{port}/{image}" if port else f"{host}/{image}"
    key = "--conf hbox.docker.image" if image else "--conf hbox.docker.image.name"
    if image and settings.get("hbox.container.type", "yarn").lower() != "docker":
        draft.leave(key, "hbox.container.type is not docker, so Hbox uses no image", image)
        return
    if image := image or settings.get("hbox.docker.image.name"):
        draft.put("docker.image", image, key)
        draft.put("am.docker", False, key)


def _ports(draft: Draft, settings: dict[str, str]) -> None:
    first, last = settings.get("hbox.reserve.port.begin"), settings.get("hbox.reserve.port.end")
    if first and last:
        draft.put("port_range", f"{first}-{last}", "--conf hbox.reserve.port.begin")
    elif first or last:
        draft.leave("--conf hbox.reserve.port.begin", "`port_range` wants both ends", first or last)


def _commands(draft: Draft, options: Options, kind: str) -> None:
    """Everybody runs the same; what a worker writes into a directory of an output's name goes to that output."""
    command = " ".join(options.rest and [shlex.quote(each) for each in options.rest])
    command = command or options.last("launch-cmd") or options.last("hbox-cmd") or ""
    links = [f'ln -sfn "$TONY_OUTPUT_{input_name(name).upper()}" {shlex.quote(name)}' for name in _outputs(options)]
    for name, task in draft.tasks.items():
        draft.no_command[name] = "Hbox takes it from the words after its options, or from --launch-cmd"
        if not command or (draft.get("framework") == "mpi" and name == "worker"):
            continue
        if draft.get("framework") == "mpi" and kind == "mpi":
            task["command"] = f"mpirun tony-here {command}"
            continue
        before = links if name in ("chief", "worker") else []
        task["command"] = " && ".join([*before, command])


def _outputs(options: Options) -> list[str]:
    return [path_and_name(each, "output")[1] for each in options.all("output")]


SYSTEM = System(
    name="hbox",
    title="Hbox",
    page="from-hbox",
    takes="a call of hbox-submit or xl-submit, also in a shell script",
    keys=(OPTIONS, KEYS),
    knows=_knows,
    read=_read,
)
