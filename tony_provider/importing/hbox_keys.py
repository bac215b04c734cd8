"""Hbox's options and configuration keys, and what becomes of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from tony_provider.importing.draft import Draft
from tony_provider.importing.keys import Carry, KeyRule, Keys, argument, by, elsewhere, left, to
from tony_provider.importing.stored_paths import on_hdfs
from tony_provider.importing.values import environment, memory, milliseconds, number, some, truth, words

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
_OF_THEIRS = {  # what programs of a kind are given, and not here
    "distlightgbm": "lightGBMlist.txt is not written",
    **dict.fromkeys(("distlightlda", "lightlda"), "lightLDAEndPoints.txt is not written"),
    "xflow": "DMLC_ROLE, DMLC_PS_ROOT_URI and others are not set, and nobody starts a scheduler of ps-lite",
}
_NO_JVM = "nothing runs in a JVM"
_NO_STREAM = "records do not come by stdin; `inputs` with `deal: queue` gives whoever is free the next file"
_BOARD = "`tensorboard: true` shows what programs write into TONY_TENSORBOARD_DIR"
_NO_SERVER = (
    "no server of ours: a running job has its page, a past one its directory on the store and its run in Airflow"
)
_HOROVOD = "Horovod's own variables can stand in `env`"


def _framework(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    """Which it is was looked at before anything else; here is what it means for others than those we know."""
    if value.lower() not in FRAMEWORKS:
        draft.leave(
            key,
            "is `standalone`, whose workers must all succeed; Hbox lets half of them fail: `start: first-come` and "
            "`tolerated_failures: 50%`",
            value,
        )
    elif told := _OF_THEIRS.get(value.lower()):
        draft.leave(key, f"{told}: the addresses are in TONY_CLUSTER_SPEC", value)


def _files(target: str) -> Carry:
    """``PATH#NAME`` of this machine, with commas between."""

    def carry(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
        for each in words(value):
            draft.add(target, _named(each), key)

    return carry


def _stored_files(target: str) -> Carry:
    """``PATH#NAME`` of HDFS, with commas between."""

    def carry(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
        for each in words(value):
            draft.add(target, _named(on_hdfs(draft, key, each)), key)

    return carry


def _named(given: str) -> str:
    source, _, name = given.partition("#")
    return f"{source}::{name}" if name and name != PurePosixPath(source).name else source


def _input(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    paths, name = path_and_name(value, "input")
    ours = input_name(name)
    draft.put(("inputs", ours, "paths"), [on_hdfs(draft, key, each) for each in words(paths)], key)
    draft.leave(
        key,
        f"files are not copied into ./{name}: the program opens those that TONY_INPUT_{ours.upper()} lists, or reads "
        "them by `tony_sdk`",
        value,
    )


def _output(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    path, name = path_and_name(value, "output")
    draft.put(("outputs", input_name(name), "path"), on_hdfs(draft, key, path), key)


def path_and_name(value: str, default: str) -> tuple[str, str]:
    """``PATH#NAME`` in its parts."""
    path, _, name = value.partition("#")
    return path, name or default


def input_name(name: str) -> str:
    """Our name of an input or output."""
    return re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "data"


def _variable(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    taken, refused = environment({names[0]: value})
    for name, text in taken.items():
        draft.put(("env", name), text, key)
    for name, why in refused.items():
        draft.leave(key, why, name)


def _tensorboard(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    if truth(value):
        draft.put("tensorboard", True, key)
        draft.leave(key, _BOARD, value)


def _growth(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    draft.leave(key, "`restart.memory_step` is an amount, and counts for tasks that ran out of memory", value)


def _of(name: str, field: str, read: Callable[[Any], Any]) -> KeyRule:
    """Of a task type, which some kinds of application have not: then Hbox ignores it, and so does this."""

    def carry(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
        made = read(value)
        if made is not None and name in draft.tasks:
            draft.put(("tasks", name, field), made, key)

    return by(carry, f"tasks.{name}.{field}")


OPTIONS = Keys(
    {
        "app-name": to("name"),
        "app-type": by(_framework, "framework"),
        "queue": to("queue"),
        "worker-num": elsewhere("tasks.worker.instances"),
        "worker-memory": _of("worker", "memory", memory),
        "worker-cores": _of("worker", "vcores", number),
        "worker-gpus": _of("worker", "gpus", some),
        "ps-num": elsewhere("tasks.ps.instances"),
        "ps-memory": _of("ps", "memory", memory),
        "ps-cores": _of("ps", "vcores", number),
        "ps-gpus": _of("ps", "gpus", some),
        "chiefworker-memory": elsewhere("tasks.chief.memory"),
        "evaluatorworker-memory": elsewhere("tasks.evaluator.memory"),
        "tf-evaluator": elsewhere("tasks.evaluator"),
        "driver-memory": to("am.memory", memory),
        "driver-cores": to("am.vcores", number),
        "am-memory": to("am.memory", memory),
        "am-cores": to("am.vcores", number),
        "files": by(_files("files"), "files"),
        "archiveFiles": by(_files("archives"), "archives"),
        "cacheFile": by(_stored_files("files"), "files"),
        "cacheArchive": by(_stored_files("archives"), "archives"),
        "input": by(_input, "inputs"),
        "output": by(_output, "outputs"),
        "s3input": left("`inputs` of any store that fsspec knows, by its URI (s3://…)", "inputs"),
        "s3output": left("`outputs` of any store that fsspec knows, by its URI (s3://…)", "outputs"),
        "launch-cmd": elsewhere("command"),
        "hbox-cmd": elsewhere("command"),
        "board-enable": by(_tensorboard, "tensorboard"),
        "board-logdir": left(_BOARD, "tensorboard"),
        "board-index": left(_BOARD, "tensorboard"),
        "board-historydir": left("event files stay in the job's directory on the store", "tensorboard"),
        "board-reloadinterval": left("nothing to set", "tensorboard"),
        "board-modelpb": left("nothing draws a model", "tensorboard"),
        "board-cacheTimeout": left("nothing to set", "tensorboard"),
        "priority": left("`priority` is a number here: YARN's own, higher first", "priority"),
        "user-path": left("`python_env` comes first on PATH; `env` may say another one", "python_env"),
        "conf": elsewhere("overrides"),
        "cluster": left("`--conn-id`: another connection is another cluster"),
        "duration": left("containers to log in to are not run"),
        "jars": left(_NO_JVM),
        "user-classpath-first": left(_NO_JVM),
        "host-local-enable": left("nobody remembers the hosts of a former run; `placement` names some", "placement"),
        "input-strategy": left("`inputs` are lists of files, always; `fetch: true` copies them", "inputs"),
        "output-strategy": left("`outputs` are directories", "outputs"),
        "output-index": left("what the leader leaves in TONY_MODEL_DIR is the job's model", "outputs"),
        "inputformat-enable": left(_NO_STREAM),
        "inputformat-shuffle": left(_NO_STREAM),
        "inputformat": left(_NO_STREAM),
        "outputformat-enable": left("`outputs` are directories", "outputs"),
        "outputformat": left("`outputs` are directories", "outputs"),
        "stream-epoch": left("`tony_sdk.inputs` can be read again for each epoch"),
        "isRenameInputFile": left("inputs are opened where they are"),
        "create-containerid-dir": left("`layout` of an output", "layout"),
        "help": left("shows Hbox's options"),
        "version": left("shows Hbox's version"),
    }
)

SAME_AS_OPTION = {  # keys of --conf that say what an option says
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
        **{key: elsewhere(OPTIONS.rules[option].here) for key, option in SAME_AS_OPTION.items()},
        "hbox.container.env.<name>": by(_variable, "env"),
        "hbox.am.env.<name>": left("nothing of the user's runs in the master"),
        "hbox.job.labelname": to("node_label"),
        "hbox.worker.nodeLabelExpression": _of("worker", "node_label", str),
        "hbox.ps.nodeLabelExpression": _of("ps", "node_label", str),
        "hbox.am.nodeLabelExpression": to("am.node_label"),
        "hbox.app.max.attempts": argument("retries", lambda value: (some(value) or 1) - 1 or None),
        "hbox.job.exec.timeout": to("timeouts.lifetime", milliseconds),
        "hbox.localresource.timeout": to("timeouts.registration", milliseconds),
        "hbox.docker.image.name": elsewhere("docker.image"),
        "hbox.docker.image": elsewhere("docker.image"),
        "hbox.docker.registry.host": elsewhere("docker.image"),
        "hbox.docker.registry.port": elsewhere("docker.image"),
        "hbox.container.type": elsewhere("docker"),
        "hbox.horovod.process.num.per.worker": _of("worker", "processes", some),
        "hbox.reserve.port.begin": elsewhere("port_range"),
        "hbox.reserve.port.end": elsewhere("port_range"),
        "hbox.worker.mem.autoscale": by(_growth, "restart.memory_step"),
        "hbox.ps.mem.autoscale": by(_growth, "restart.memory_step"),
        "hbox.container.maxFailures.rate": left(
            "`tolerated_failures`, of workers that begin `first-come`", "tolerated_failures"
        ),
        "hbox.host.blacklist": left(
            "`placement` names nodes to be on, none to avoid; `restart.node_losses` avoids those that lose containers",
            "restart.node_losses",
        ),
        "hbox.task.timeout": left("nothing to set: an executor is lost after 15 s of silence"),
        "hbox.tf.input.ps.enable": left("`tasks` of an input", "tasks"),
        "hbox.am.cmd": left("nothing of the user's runs in the master; a type with `role: once`", "role"),
        "hbox.tf.mode.single": left("`framework: standalone`", "framework"),
        "hbox.docker.<setting>": left("no words for Docker's command line; `docker` has keys of its own", "docker"),
        "hbox.horovod.<setting>": left(_HOROVOD, "env"),
        "hbox.mpi.<setting>": left("`mpirun` is found on PATH, or in the job's `python_env`", "python_env"),
        "hbox.history.<setting>": left(_NO_SERVER),
        "hbox.interresult.<setting>": left("`airflow tony export`; every complete checkpoint is copied"),
        "hbox.tf.board.<setting>": left(_BOARD, "tensorboard"),
        "hbox.inputformat.<setting>": left(_NO_STREAM),
        "hbox.s3.<setting>": left("credentials of a store are the nodes' own, or `secrets`", "secrets"),
    }
)
