"""Tables of the configuration keys and client options of LinkedIn's TonY, with the rule for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tony_provider.importers.job_source import for_sh
from tony_provider.importers.key_table import (
    NO_JVM,
    NO_SERVER,
    Carry,
    Draft,
    KeyRule,
    Keys,
    argument,
    boolean,
    carried_by,
    handled_elsewhere,
    left_out,
    mapped_to,
    memory,
    milliseconds,
    number,
    pairs,
    positive_or_none,
    seconds,
    words,
)
from tony_provider.importers.yarn_terms import take_image
from tony_provider.runtime.jobspec.model import Role

_POOLS = (
    "limits a job's requests: here the queue, Airflow's pools, and `max_tasks`, `max_gpus` of the connection do this. "
    "Here `max_instances` is the number of tasks to which a type may grow"
)
ADDRESSES = "addresses are in the connection; if a program needs such files, list them in `files`"
_CHIEF = "the chief is the task type named chief or with `role: chief`; otherwise rank 0 leads"


# -- rules that need more than a conversion --------------------------------------------------------------------------


def _resources(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    """Carry over files and archives (``SRC``, ``SRC::NAME``, ``SRC#archive``) of one task type or of all."""
    for each in words(value):
        is_archive = each.endswith("#archive")
        draft.add((*draft.place(names), "archives" if is_archive else "files"), each.removesuffix("#archive"), key)


def put_container_environment(draft: Draft, key: str, given: Mapping[str, str]) -> None:
    """Carry over the variables of all containers, including YARN's image variables. User processes inherit them."""
    draft.put_environment((), take_image(draft, (), key, given), key, " ")


def _environment(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    draft.put_environment((), pairs(words(value)), key, " ")


def _container_environment(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    put_container_environment(draft, key, pairs(words(value)))


def _chief(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    """Carry over TonY's chief, which is the first task of a type.

    In a job specification, only a task type with one task can be the chief. Without a chief, rank 0 leads.
    """
    name = draft.task_type(str(value))
    if name in draft.tasks and name != Role.CHIEF.value and draft.tasks[name]["instances"] == 1:
        draft.put(("tasks", name, "role"), Role.CHIEF.value, key)
    elif name != Role.CHIEF.value:
        draft.leave_out(key, _CHIEF, value)


def _types(draft: Draft, value: Any) -> list[str]:
    """Return our names of the task types that a value lists."""
    return [draft.known_type(name) for name in words(value)]


def _untracked(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    for name in _types(draft, value):
        if name in draft.tasks and name != Role.PS.value:
            draft.put(("tasks", name, "decides"), False, key)


def _sidecars(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    for name in _types(draft, value):
        if name in draft.tasks:
            draft.put(("tasks", name, "role"), Role.SIDECAR.value, key)


def _depends_on(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    """Give the role ``once`` to task types that another type depends on, because TonY waits for their end."""
    for other in _types(draft, value):
        if other in {role.value for role in Role}:
            draft.leave_out(key, f"{other} trains with the others, and types that train together start together", value)
        elif other in draft.tasks:
            draft.put(("tasks", other, "role"), Role.ONCE.value, key)
            _after(draft, draft.task_type(names[0]), other, key)
            for name in draft.tasks:  # types that train together start together, so all of them wait
                if name != other and "role" not in draft.tasks[name]:
                    _after(draft, name, other, key)


def _prepare_stage(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    stage = [name for name in _types(draft, value) if name in draft.tasks]
    for name in stage:
        draft.put(("tasks", name, "role"), Role.ONCE.value, key)
    for name in draft.tasks:
        if name not in stage:
            for other in stage:
                _after(draft, name, other, key)


def _after(draft: Draft, name: str, other: str, key: str) -> None:
    draft.put(("tasks", name, "after", other), "succeeded", key)


def _of_evaluators(carry: Carry) -> KeyRule:
    """Return a rule that carries a key over for evaluators, and leaves it out for other task types.

    Only evaluators have a time limit after the end of the training.
    """

    def carry_or_leave(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
        if names[0] == Role.EVALUATOR.value:
            carry(draft, key, value, names)
        else:
            draft.leave_out(key, "only evaluators have a time limit after the end: `timeouts.evaluator`", value)

    return carried_by(carry_or_leave, "timeouts.evaluator")


def _ignored_timeout(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    if not boolean(value):
        draft.leave_out(key, "an evaluator that exceeds its time limit is stopped, and the job succeeds", value)


def _distributed_mode(value: Any) -> str | None:
    return "first-come" if str(value).strip().upper() == "FCFS" else None


def tensorboard_directory(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    """Start our TensorBoard, which shows what programs write into its directory."""
    if draft.get("tensorboard") is None:
        draft.put("tensorboard", True, key)
    draft.leave_out(
        key, "`tensorboard: true` shows what programs write into TONY_TENSORBOARD_DIR, and no other path", value
    )


KEYS = Keys(
    {
        **handled_elsewhere(
            {
                "tony.application.framework": "framework",
                "tony.tensorboard.memory": "tensorboard",
                "tony.tensorboard.vcores": "tensorboard",
                "tony.tensorboard.instances": "tensorboard",
                "tony.tensorboard.gpus": "tensorboard",
                "tony.<type>.instances": "tasks.<type>.instances",
                "tony.containers.command": "tasks.<type>.command",
                "tony.docker.enabled": "docker",
                "tony.docker.containers.image": "docker.image",
                "tony.docker.containers.mount": "docker.mounts",
                "tony.docker.<type>.image": "tasks.<type>.docker.image",
                "tony.application.single-node": "framework",
                "tony.application.placement-spec": "tasks.<type>.placement",
                "tony.<type>.placement-spec": "tasks.<type>.placement",
                "tony.<type>.allocation-tags": "tasks.<type>.placement.tags",
                "tony.containers.placement-spec": "tasks.<type>.placement",
                "tony.containers.allocation-tags": "tasks.<type>.placement.tags",
                "tony.application.docker.enabled": "docker",
                "tony.application.docker.image": "docker.image",
            }
        ),
        "tony.application.name": mapped_to("name"),
        "tony.yarn.queue": mapped_to("queue"),
        "tony.application.tags": mapped_to("tags", words),
        "tony.application.node-label": mapped_to("node_label"),
        "tony.application.distributed-mode": mapped_to("start", _distributed_mode),
        "tony.application.timeout": mapped_to("timeouts.lifetime", milliseconds),
        "tony.container.allocation.timeout": mapped_to("timeouts.queue", milliseconds),
        "tony.container.registration.timeout": mapped_to("timeouts.registration", milliseconds),
        "tony.application.untracked.jobtypes": carried_by(_untracked, "tasks.<type>.decides"),
        "tony.application.sidecar.jobtypes": carried_by(_sidecars, "tasks.<type>.role"),
        "tony.application.prepare-stage": carried_by(_prepare_stage, "tasks.<type>.after"),
        "tony.application.training-stage": left_out("a type that waits for others lists them in `after`", "after"),
        "tony.application.dependency.<type>.timeout.after.<group>": _of_evaluators(
            mapped_to("timeouts.evaluator", seconds).carry
        ),
        "tony.application.tensorboard-log-dir": carried_by(tensorboard_directory, "tensorboard"),
        "tony.am.memory": mapped_to("am.memory", memory),
        "tony.am.vcores": mapped_to("am.vcores", number),
        "tony.am.retry-count": argument("retries", positive_or_none),
        "tony.<type>.memory": mapped_to("tasks.<type>.memory", memory),
        "tony.<type>.vcores": mapped_to("tasks.<type>.vcores", number),
        "tony.<type>.gpus": mapped_to("tasks.<type>.gpus", positive_or_none),
        "tony.<type>.node-label": mapped_to("tasks.<type>.node_label"),
        "tony.<type>.command": mapped_to("tasks.<type>.command", for_sh),
        "tony.<type>.depends-on": carried_by(_depends_on, "tasks.<type>.after"),
        "tony.<type>.resources": carried_by(_resources, "tasks.<type>.files"),
        "tony.containers.resources": carried_by(_resources, "files"),
        "tony.execution.envs": carried_by(_environment, "env"),
        "tony.containers.envs": carried_by(_container_environment, "env"),
        "tony.application.type": left_out("the application type is always TONY"),
        "tony.application.enable-preprocess": left_out("preparation is a task of the DAG, or the task type `prepare`"),
        "tony.application.num-client-rm-connect-retries": left_out("`timeout` of the connection", "timeout"),
        **dict.fromkeys(
            ("tony.application.stop-on-failure-jobtypes", "tony.application.stop.on.failure.jobtypes"),
            left_out("the failure of any type except sidecars fails the job if restarts do not help", "restart"),
        ),
        "tony.application.fail-on-worker-failure-enabled": left_out(
            "a failed worker fails the job; with `min_instances` or `tolerated_failures` the job continues with fewer",
            "min_instances",
        ),
        "tony.application.group.<group>": left_out("an evaluator's time counts from the end of the types that decide"),
        "tony.application.dependency.<type>.timeout.after.<group>.ignored": _of_evaluators(_ignored_timeout),
        "tony.application.security.enabled": left_out("`kerberos` of the connection", "kerberos"),
        **dict.fromkeys(
            (
                "tony.application.hdfs-conf-path",
                "tony.application.yarn-conf-path",
                "tony.application.mapred-conf-path",
            ),
            left_out(ADDRESSES, "files"),
        ),
        **dict.fromkeys(
            ("tony.application.hadoop.location", "tony.application.hadoop.classpath"),
            left_out("`hadoop: true` finds the node's own Hadoop", "hadoop"),
        ),
        "tony.application.placement-spec-retry-interval-ms": left_out(
            "nothing to set: YARN keeps requests, and requests that YARN gives up are repeated every 5 s"
        ),
        **dict.fromkeys(
            (
                "tony.application.alt-placement-spec",
                "tony.application.placement-alt-fallback-timeout-ms",
                "tony.application.placement-alt-fallback-attempts",
                "tony.<type>.alt-placement-spec",
            ),
            left_out("rules of `placement` always apply; an alternative placement needs another job"),
        ),
        "tony.application.reserve.port.python.process.wait.seconds": left_out("executors hold ports themselves"),
        **dict.fromkeys(
            (
                "tony.application.test.horovod-driver-fail-enable",
                "tony.application.test.horovod-test-mode-enable",
                "tony.horovod.mode.test",
                "tony.horovod.mode.test.fast.fail",
            ),
            left_out("for TonY's own tests"),
        ),
        "tony.horovod.driver.mode.debug": left_out("no driver: the rendezvous runs next to rank 0"),
        "tony.other.namenodes": left_out("`hadoop: true` in the job, and `other_hdfs` of the connection", "other_hdfs"),
        **dict.fromkeys(
            ("tony.worker.timeout", "tony.task.executor.execution-timeout-ms"),
            left_out(
                "bounds one program; `timeouts.lifetime` bounds the job, `execution_timeout` the task of the DAG",
                "timeouts.lifetime",
            ),
        ),
        "tony.task.executor.registry-timeout-sec": left_out(
            "executors wait for the others as long as the job does; `timeouts.registration` limits each executor",
            "timeouts.registration",
        ),
        "tony.evaluator.run-alone.timeout": mapped_to("timeouts.evaluator", milliseconds),
        "tony.chief.name": carried_by(_chief, "role"),
        "tony.chief.index": left_out(_CHIEF, "role"),
        **dict.fromkeys(("tony.<type>.max-instances", "tony.task.max-total-<resource>"), left_out(_POOLS)),
        "tony.am.gpus": left_out("no user program runs in the master"),
        "tony.am.wait-client-signal-stop-timeout-sec": left_out("the master does not wait for a client"),
        "tony.am.startup-timeout": left_out("`timeouts.queue` counts from the submission", "timeouts.queue"),
        **dict.fromkeys(
            ("tony.task.heartbeat-interval-ms", "tony.task.heartbeat-interval", "tony.task.max-missed-heartbeats"),
            left_out("nothing to set: executors report every 3 s, and count as lost after 15 s without a report"),
        ),
        "tony.task.metrics-interval-ms": left_out("nothing to set: measured every 3 s"),
        "tony.task.gpu-metrics.enabled": left_out("nothing to set: GPUs are measured if the node's NVML reports them"),
        "tony.task.executor.execution.error-message-max-depth": left_out(
            "a failure shows the last output lines of the program"
        ),
        **dict.fromkeys(
            ("tony.task.executor.jvm.opts", "tony.task.am.jvm.opts", "tony.task.default.jvm.opts"),
            NO_JVM,
        ),
        "tony.gpu-exec-path": left_out("NVML measures GPUs, without a program"),
        "tony.python-exec-path": left_out(
            "the runtime's Python is `python` of the connection, the job's is `python_env`"
        ),
        **dict.fromkeys(
            (
                "tony.init.module",
                "tony.secret.key",
                "tony.http.port",
                "tony.https.port",
                "tony.https.keystore.path",
                "tony.https.keystore.type",
                "tony.https.keystore.password",
                "tony.https.keystore.algorithm",
                "tony.keytab.user",
                "tony.keytab.location",
                "tony.portal.url",
                "tony.portal.cache.max-entries",
                "tony.history.<setting>",
                "tony.history.cache.max-entries",
            ),
            NO_SERVER,
        ),
        "tony.version-info.<part>": left_out("says which TonY submitted it"),
    }
)

OPTIONS = Keys(
    {
        **handled_elsewhere(
            {
                "executes": "tasks.<type>.command",
                "task_params": "tasks.<type>.command",
                "python_binary_path": "python_env",
                "python_venv": "python_env",
                "src_dir": "files",
                "shell_env": "env",
                "container_env": "env",
                "conf": "overrides",
                "conf_file": "overrides",
                "sidecar_tensorboard_log_dir": "tensorboard",
                "appname": "name",
                "app_name": "name",
            }
        ),
        "hdfs_classpath": left_out("no Java classes are needed"),
        "debug": left_out("the job's directory keeps what the job was started with"),
        "help": left_out("shows TonY's options"),
    }
)
