"""Import jobs of Hbox and XLearning from a call of hbox-submit or xl-submit, with the rule for each option and key."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from tony_provider.importers.job_source import Options, Source, System, carry_variables, read_options
from tony_provider.importers.key_table import (
    NO_JVM,
    NO_SERVER,
    Draft,
    KeyRule,
    Keys,
    NotImportable,
    argument,
    boolean,
    carried_by,
    handled_elsewhere,
    left_out,
    mapped_to,
    memory,
    milliseconds,
    number,
    number_of,
    positive_or_none,
    words,
)
from tony_provider.importers.yarn_terms import on_hdfs

FRAMEWORKS = {
    "tensorflow": "tensorflow",
    "tensor2tensor": "tensorflow",
    "mxnet": "mxnet",
    "distxgboost": "xgboost",
    "disttorch": "pytorch",
    "horovod": "horovod",
    "mpi": "mpi",
    "tensornet": "mpi",
    "distlightgbm": "generic",
    "distlightlda": "generic",
    "lightlda": "generic",
    "xflow": "generic",
    "xdl": "generic",
}
_OF_THEIRS = {  # type of application -> what only Hbox provides for its programs
    "distlightgbm": "lightGBMlist.txt is not written",
    **dict.fromkeys(("distlightlda", "lightlda"), "lightLDAEndPoints.txt is not written"),
    "xflow": "DMLC_ROLE, DMLC_PS_ROOT_URI and others are not set, and no scheduler of ps-lite is started",
}
_NO_STREAM = "records are not sent to stdin; `inputs` with `deal: queue` assigns the next file to an idle task"
_BOARD = "`tensorboard: true` shows what programs write into TONY_TENSORBOARD_DIR"


def _framework(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    """Record how Hbox treats this type of application differently. The caller has already set the framework."""
    if value.lower() not in FRAMEWORKS:
        draft.leave_out(
            key,
            "is `standalone`, whose workers must all succeed; Hbox lets half of them fail: set `start: first-come` and "
            "`tolerated_failures: 50%`",
            value,
        )
    elif reason := _OF_THEIRS.get(value.lower()):
        draft.leave_out(key, f"{reason}: the addresses are in TONY_CLUSTER_SPEC", value)


def _files(target: str, *, are_stored: bool = False) -> KeyRule:
    """Return a rule for comma-separated ``PATH#NAME``. The files are on HDFS if ``are_stored``, otherwise local."""

    def carry(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
        for each in words(value):
            source, _, name = (on_hdfs(draft, key, each) if are_stored else each).partition("#")
            draft.add_file(target, source, name, key)

    return carried_by(carry, target)


def _input(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    paths, name = path_and_name(value, "input")
    ours = input_name(name)
    draft.put(("inputs", ours, "paths"), [on_hdfs(draft, key, each) for each in words(paths)], key)
    draft.leave_out(
        key,
        f"files are not copied into ./{name}: the program opens those that TONY_INPUT_{ours.upper()} lists, or reads "
        "them by `tony_sdk`",
        value,
    )


def _output(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    path, name = path_and_name(value, "output")
    draft.put(("outputs", input_name(name), "path"), on_hdfs(draft, key, path), key)


def path_and_name(value: str, default: str) -> tuple[str, str]:
    """Split ``PATH#NAME``. Without a name, return ``default`` as the name."""
    path, _, name = value.partition("#")
    return path, name or default


def input_name(name: str) -> str:
    """Return the name that an input or output of Hbox has in the job."""
    return re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "data"


def _variable(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    draft.put_environment((), {names[0]: value}, key.removesuffix(f".{names[0]}"))


def _tensorboard(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    if boolean(value):
        draft.put("tensorboard", True, key)
        draft.leave_out(key, _BOARD, value)


def _of(name: str, field: str, read: Callable[[Any], Any]) -> KeyRule:
    """Return a rule for a key of a task type. Like Hbox, the rule ignores the key without such a task type."""

    def carry(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
        if (made := read(value)) is not None and name in draft.tasks:
            draft.put(("tasks", name, field), made, key)

    return carried_by(carry, f"tasks.{name}.{field}")


OPTIONS = Keys(
    {
        **handled_elsewhere(
            {
                "worker-num": "tasks.worker.instances",
                "ps-num": "tasks.ps.instances",
                "chiefworker-memory": "tasks.chief.memory",
                "evaluatorworker-memory": "tasks.evaluator.memory",
                "tf-evaluator": "tasks.evaluator",
                "launch-cmd": "command",
                "hbox-cmd": "command",
                "conf": "overrides",
            }
        ),
        "app-name": mapped_to("name"),
        "app-type": carried_by(_framework, "framework"),
        "queue": mapped_to("queue"),
        "worker-memory": _of("worker", "memory", memory),
        "worker-cores": _of("worker", "vcores", number),
        "worker-gpus": _of("worker", "gpus", positive_or_none),
        "ps-memory": _of("ps", "memory", memory),
        "ps-cores": _of("ps", "vcores", number),
        "ps-gpus": _of("ps", "gpus", positive_or_none),
        "driver-memory": mapped_to("am.memory", memory),
        "driver-cores": mapped_to("am.vcores", number),
        "am-memory": mapped_to("am.memory", memory),
        "am-cores": mapped_to("am.vcores", number),
        "files": _files("files"),
        "archiveFiles": _files("archives"),
        "cacheFile": _files("files", are_stored=True),
        "cacheArchive": _files("archives", are_stored=True),
        "input": carried_by(_input, "inputs"),
        "output": carried_by(_output, "outputs"),
        "s3input": left_out("`inputs` with s3:// URIs", "inputs"),
        "s3output": left_out("`outputs` with s3:// URIs", "outputs"),
        "board-enable": carried_by(_tensorboard, "tensorboard"),
        **dict.fromkeys(("board-logdir", "board-index"), left_out(_BOARD, "tensorboard")),
        "board-historydir": left_out("event files stay in the job's directory on the store", "tensorboard"),
        **dict.fromkeys(("board-reloadinterval", "board-cacheTimeout"), left_out("nothing to set", "tensorboard")),
        "board-modelpb": left_out("model graphs are not drawn", "tensorboard"),
        "priority": left_out("here `priority` is a number of YARN, and higher numbers come first", "priority"),
        "user-path": left_out("`python_env` comes first on PATH; `env` may set another PATH", "python_env"),
        "cluster": left_out("use `--conn-id`: each connection is for one cluster"),
        "duration": left_out("interactive containers are not supported"),
        **dict.fromkeys(("jars", "user-classpath-first"), NO_JVM),
        "host-local-enable": left_out(
            "the hosts of an earlier run are not stored; `placement` can name hosts", "placement"
        ),
        "input-strategy": left_out("`inputs` are always lists of files; `fetch: true` copies the files", "inputs"),
        **dict.fromkeys(
            ("output-strategy", "outputformat", "outputformat-enable"), left_out("`outputs` are directories", "outputs")
        ),
        "output-index": left_out("the leader's files in TONY_MODEL_DIR are the job's model", "outputs"),
        **dict.fromkeys(("inputformat", "inputformat-enable", "inputformat-shuffle"), left_out(_NO_STREAM)),
        "stream-epoch": left_out("`tony_sdk.inputs` can be read again for each epoch"),
        "isRenameInputFile": left_out("inputs are read in place"),
        "create-containerid-dir": left_out("`layout` of an output", "layout"),
        "help": left_out("shows Hbox's options"),
        "version": left_out("shows Hbox's version"),
    }
)

SAME_AS_OPTION = {  # keys of --conf with the same meaning as an option
    "hbox.worker.num": "worker-num",
    "hbox.worker.memory": "worker-memory",
    "hbox.worker.cores": "worker-cores",
    "hbox.worker.gpus": "worker-gpus",
    "hbox.ps.num": "ps-num",
    "hbox.ps.memory": "ps-memory",
    "hbox.ps.cores": "ps-cores",
    "hbox.ps.gpus": "ps-gpus",
    "hbox.chief.worker.memory": "chiefworker-memory",
    "hbox.evaluator.worker.memory": "evaluatorworker-memory",
    "hbox.tf.evaluator": "tf-evaluator",
    "hbox.driver.memory": "driver-memory",
    "hbox.driver.cores": "driver-cores",
    "hbox.am.memory": "am-memory",
    "hbox.am.cores": "am-cores",
    "hbox.app.queue": "queue",
    "hbox.app.type": "app-type",
    "hbox.tf.board.enable": "board-enable",
}
KEYS = Keys(
    {
        **handled_elsewhere(
            {
                **{key: OPTIONS.rules[option].here for key, option in SAME_AS_OPTION.items()},
                "hbox.docker.image.name": "docker.image",
                "hbox.docker.image": "docker.image",
                "hbox.docker.registry.host": "docker.image",
                "hbox.docker.registry.port": "docker.image",
                "hbox.container.type": "docker",
                "hbox.reserve.port.begin": "port_range",
                "hbox.reserve.port.end": "port_range",
            }
        ),
        "hbox.container.env.<name>": carried_by(_variable, "env"),
        "hbox.am.env.<name>": left_out("no user program runs in the master"),
        "hbox.job.labelname": mapped_to("node_label"),
        "hbox.worker.nodeLabelExpression": _of("worker", "node_label", str),
        "hbox.ps.nodeLabelExpression": _of("ps", "node_label", str),
        "hbox.am.nodeLabelExpression": mapped_to("am.node_label"),
        "hbox.app.max.attempts": argument("retries", lambda value: (positive_or_none(value) or 1) - 1 or None),
        "hbox.job.exec.timeout": mapped_to("timeouts.lifetime", milliseconds),
        "hbox.localresource.timeout": mapped_to("timeouts.registration", milliseconds),
        "hbox.horovod.process.num.per.worker": _of("worker", "processes", positive_or_none),
        **dict.fromkeys(
            ("hbox.worker.mem.autoscale", "hbox.ps.mem.autoscale"),
            left_out(
                "`restart.memory_step` is an amount, and applies to tasks that ran out of memory", "restart.memory_step"
            ),
        ),
        "hbox.container.maxFailures.rate": left_out(
            "`tolerated_failures`, for workers with `start: first-come`", "tolerated_failures"
        ),
        "hbox.host.blacklist": left_out(
            "`placement` cannot exclude nodes; `restart.node_losses` avoids nodes that lose containers",
            "restart.node_losses",
        ),
        "hbox.task.timeout": left_out("nothing to set: an executor counts as lost after 15 s without a report"),
        "hbox.tf.input.ps.enable": left_out("`tasks` of an input", "tasks"),
        "hbox.am.cmd": left_out("no user program runs in the master; use a type with `role: once`", "role"),
        "hbox.tf.mode.single": left_out("`framework: standalone`", "framework"),
        "hbox.docker.<setting>": left_out("no options for Docker's command line; use the keys of `docker`", "docker"),
        "hbox.horovod.<setting>": left_out("set Horovod's own variables in `env`", "env"),
        "hbox.mpi.<setting>": left_out("`mpirun` is found on PATH, or in the job's `python_env`", "python_env"),
        "hbox.history.<setting>": NO_SERVER,
        "hbox.interresult.<setting>": left_out("`airflow tony export`; every complete checkpoint is copied"),
        "hbox.tf.board.<setting>": left_out(_BOARD, "tensorboard"),
        "hbox.inputformat.<setting>": left_out(_NO_STREAM),
        "hbox.s3.<setting>": left_out("a store's credentials come from the nodes, or from `secrets`", "secrets"),
    }
)

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
)  # application types with parameter servers; Hbox ignores --ps-num for other types


def _knows(source: Source) -> bool:
    return bool(source.calls(_is_call))


def _is_call(given: Sequence[str]) -> bool:
    return PurePosixPath(given[0]).name in _PROGRAMS


def _read(source: Source) -> Draft:
    options = _with_both_names(read_options(source.arguments(_is_call, "has no call of hbox-submit or xl-submit")))
    settings = {_key(name): value for name, _, value in (each.partition("=") for each in options.all("conf"))}
    given_last = {name: value for name, value in options.given if name not in ("conf", "input", "output")}
    said = {option: settings[key] for key, option in SAME_AS_OPTION.items() if key in settings} | given_last
    draft = Draft()
    kind = said.get("app-type", "hbox").lower()
    if kind in _INTERACTIVE:
        raise NotImportable(f"--app-type {kind}: interactive containers are not supported")
    draft.put("framework", FRAMEWORKS.get(kind, "standalone"), "--app-type")
    _task_types(draft, said, kind)
    _servers(draft)
    repeated = [(name, value) for name, value in options.given if name in ("input", "output")]
    OPTIONS.carry_options(draft, [*said.items(), *repeated], "--", "not an option of Hbox")
    others = [(key, value) for key, value in settings.items() if key not in SAME_AS_OPTION]
    KEYS.carry_options(draft, others, "--conf ")
    _image(draft, settings)
    _ports(draft, settings)
    _commands(draft, options, kind)
    carry_variables(draft, source.folder, _VARIABLES, _INSTEAD)
    return draft


def _key(name: str) -> str:
    """Return Hbox's name for a key, which has another prefix in XLearning."""
    return re.sub(r"^xlearning\.", "hbox.", name)


def _with_both_names(options: Options) -> Options:
    """Replace short names of options by the long ones, such as appName by app-name."""
    short = {re.sub(r"-(\w)", lambda found: found[1].upper(), name): name for name in OPTIONS}
    return Options([(short.get(name, name), value) for name, value in options.given], options.rest)


def _task_types(draft: Draft, said: dict[str, str], kind: str) -> None:
    workers = number_of("--worker-num", said.get("worker-num", "1"))
    servers = number_of("--ps-num", said.get("ps-num", "0"))
    if servers > 0 and kind not in _WITH_SERVERS:
        draft.leave_out("--ps-num", f"Hbox starts no servers for --app-type {kind}", servers)
        servers = 0
    framework = draft.get("framework")
    if framework == "tensorflow" and "chiefworker-memory" in said and workers > 1:
        draft.put("tasks.chief.memory", memory(said["chiefworker-memory"]), "--chiefworker-memory")
        _sized_like_workers(draft, "chief", said)
        workers -= 1
    if framework == "mpi":
        draft.put("tasks.chief.memory", memory(said.get("worker-memory", "1024")), "--worker-memory")
        _sized_like_workers(draft, "chief", said)
        workers -= 1
    evaluator = framework == "tensorflow" and boolean(said.get("tf-evaluator", "false")) and workers > 1
    if evaluator:  # Hbox counts the evaluator as a worker
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
    """Give the parameter servers of generic jobs the role worker and ``decides: false``.

    MXNet jobs without servers become standalone.
    """
    framework, servers = draft.get("framework"), draft.tasks.get("ps")
    if framework == "mxnet" and servers is None:
        draft.put("framework", "standalone", "--app-type")
    elif framework == "generic" and servers is not None:
        draft.put("tasks.ps.role", "worker", "--ps-num")
        draft.put("tasks.ps.decides", False, "--ps-num")


def _sized_like_workers(draft: Draft, name: str, said: dict[str, str]) -> None:
    if "worker-cores" in said:
        draft.put(("tasks", name, "vcores"), number_of("--worker-cores", said["worker-cores"]), "--worker-cores")
    if (gpus := number_of("--worker-gpus", said.get("worker-gpus", "0"))) > 0:
        draft.put(("tasks", name, "gpus"), gpus, "--worker-gpus")


def _image(draft: Draft, settings: dict[str, str]) -> None:
    """Carry over the image of all containers but the master. Some versions have the registry in a separate key."""
    host, port = settings.get("hbox.docker.registry.host"), settings.get("hbox.docker.registry.port")
    image = settings.get("hbox.docker.image")
    if image and host:
        image = f"{host}:{port}/{image}" if port else f"{host}/{image}"
    key = "--conf hbox.docker.image" if image else "--conf hbox.docker.image.name"
    if image and settings.get("hbox.container.type", "yarn").lower() != "docker":
        draft.leave_out(key, "hbox.container.type is not docker, so Hbox uses no image", image)
        return
    if image := image or settings.get("hbox.docker.image.name"):
        draft.put("docker.image", image, key)
        draft.put("am.docker", False, key)


def _ports(draft: Draft, settings: dict[str, str]) -> None:
    first, last = settings.get("hbox.reserve.port.begin"), settings.get("hbox.reserve.port.end")
    if first and last:
        draft.put("port_range", f"{first}-{last}", "--conf hbox.reserve.port.begin")
    elif first or last:
        draft.leave_out("--conf hbox.reserve.port.begin", "`port_range` needs both ends", first or last)


def _commands(draft: Draft, options: Options, kind: str) -> None:
    """Set the command of all tasks. The command first links Hbox's output directories to the job's outputs."""
    command = shlex.join(options.rest) or options.last("launch-cmd") or options.last("hbox-cmd") or ""
    links = [f'ln -sfn "$TONY_OUTPUT_{input_name(name).upper()}" {shlex.quote(name)}' for name in _outputs(options)]
    is_mpi = draft.get("framework") == "mpi"
    for name, task in draft.tasks.items():
        draft.no_command[name] = "Hbox reads the command from the words after its options, or from --launch-cmd"
        if not command or (is_mpi and name == "worker"):
            continue
        if is_mpi and kind == "mpi":
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
    is_call=_is_call,
)
