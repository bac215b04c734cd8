"""Import TorchX jobs: an AppDef in JSON or YAML, or a call of ``torchx run`` with a standard component.

A call of torchrun is replaced by the command that torchrun would start.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import attrs

from tony_provider.importers.job_source import Options, Source, System, read_options
from tony_provider.importers.key_table import (
    Draft,
    Keys,
    NotImportable,
    carried_by,
    handled_elsewhere,
    left_out,
    listed,
    mapped_to,
    mapping,
    nested_mapping,
    number,
    number_of,
    pairs,
    positive_or_none,
    words,
)

_TORCHRUN = ("torchrun", "torch.distributed.run")
MACROS = {"app_id": "$TONY_APPLICATION_ID", "replica_id": "$TONY_TASK_INDEX", "img_root": ".", "base_img_root": "."}
MACRO = re.compile(r"\$\{(\w+)\}")
FLAGS = ("dryrun", "wait", "log", "tee_logs", "stdin")  # options of torchx run that have no value
_MODULE, _NO_PYTHON = ("m", "module"), ("no-python", "no_python")
_FLAGS_OF_TORCHRUN = (*_MODULE, *_NO_PYTHON, "run-path", "run_path", "standalone")


@attrs.frozen
class RoleCommand:
    """The words of a role's command, and the number of its processes in each container."""

    words: Sequence[str]
    processes: str = "1"
    is_torchrun: bool = False


def command_of(draft: Draft, key: str, entrypoint: str, args: Sequence[str]) -> RoleCommand:
    """Return the command of a role. Replace torchrun, which jobs do not need, by the program that it would start."""
    given = [entrypoint, *args]
    if PurePosixPath(entrypoint).name in ("bash", "sh") and len(args) == 2 and args[0] == "-c":
        try:
            inner = shlex.split(args[1].replace("$$", "$"))
        except ValueError:
            inner = []
        given = inner if _torchrun(inner) is not None else given
    if (place := _torchrun(given)) is None:
        return RoleCommand(given)
    options = read_options(given[place + 1 :], flags=_FLAGS_OF_TORCHRUN)
    program, flags = list(options.rest), {name for name, _ in options.given}
    processes = options.last("nproc_per_node") or options.last("nproc-per-node") or "1"
    if processes in ("auto", "gpu"):
        processes = "gpus"
    if not program:
        draft.leave_out(f"{key}.args", "the torchrun command names no program", " ".join(given))
    words = ["python", *(["-m"] if flags.intersection(_MODULE) else []), *program]
    return RoleCommand(program if flags.intersection(_NO_PYTHON) else words, processes, is_torchrun=True)


def _torchrun(words: Sequence[str]) -> int | None:
    """Return the index of torchrun's name in a command, or None."""
    for index, word in enumerate(words[:3]):
        if PurePosixPath(word).name in _TORCHRUN:
            return index
    return None


def shell_word(text: str) -> str:
    """Quote a word for a shell, with TorchX's macros replaced by our variables."""
    if not MACRO.search(text):
        return shlex.quote(text.replace("$$", "$"))
    escaped = re.sub(r'(["\\`])', r"\\\1", text)
    filled = MACRO.sub(lambda found: MACROS.get(found[1], found[0]), escaped)
    return filled if re.fullmatch(r"[\w$./=:-]+", filled) else f'"{filled}"'


_NO_VALUE = -1  # stands for a resource without a value in TorchX
_NODES = re.compile(r"(?:(?:(?P<least>\d+):)?(?P<nodes>\d+)x)?(?P<processes>\d+)")
_IMAGE = "TorchX's own image is not used; set `docker: {image: …}` or `python_env`"
_NO_RETRIES = (
    "TorchX's default, no retries, is `restart: {budget: 0}`; without this key, tasks restart up to 3 times, from "
    "their newest checkpoint"
)
_OF_MOUNTS = {  # name in the option --mounts -> field of an AppDef
    "src": "src_path",
    "source": "src_path",
    "dst": "dst_path",
    "destination": "dst_path",
    "target": "dst_path",
    "readonly": "read_only",
}
# Named resources of TorchX 0.7: vcores, GPUs and memory in GiB.
_SIZES = {
    "gpu.small": (8, 1, 32),
    "gpu.medium": (16, 2, 64),
    "gpu.large": (32, 4, 128),
    "gpu.xlarge": (64, 8, 256),
    "cpu.nano": (1, 0, 0.5),
    "cpu.micro": (1, 0, 1),
    "cpu.small": (1, 0, 2),
    "cpu.medium": (2, 0, 4),
    "cpu.large": (2, 0, 8),
    "cpu.xlarge": (8, 0, 32),
}


def _environment(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    given = mapping(value)
    of_torchx = [name for name in given if str(name).startswith("TORCHX_")]
    for name in of_torchx:
        draft.leave_out(f"{key}.{name}", "is for TorchX itself", str(given[name]))
    others = {name: text for name, text in given.items() if name not in of_torchx}
    draft.put_environment(draft.place(names), others, key)


def _retries(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    """Carry over the retries of a role. A job has only one budget, so the largest number of all roles applies."""
    if (budget := positive_or_none(value)) is None:
        draft.leave_out(key, _NO_RETRIES)
        return
    draft.put("restart.budget", max(draft.get("restart.budget") or 0, budget), key)


def _image(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    if not value or str(value).startswith(("/", ".")):
        draft.leave_out(key, "is a directory; list the files that the job needs in `files`", value)
    else:
        draft.put("tasks.<type>.docker.image", value, key, names)


def _mounts(draft: Draft, key: str, value: Any, names: Sequence[str]) -> None:
    docker = (*draft.place(names), "docker")
    for each in listed(value):
        source, target = str(nested_mapping(each).get("src_path", "")), str(nested_mapping(each).get("dst_path", ""))
        is_device = "permissions" in nested_mapping(each)
        if source.startswith("/") and target and not is_device and draft.get((*docker, "image")):
            mode = "ro" if str(each.get("read_only", "")).lower() == "true" else "rw"
            draft.add((*docker, "mounts"), f"{source}:{target}:{mode}", key)
        else:
            draft.leave_out(key, "an image can mount directories of the node, and nothing else", each)


def _mounts_of_words(text: str) -> list[dict[str, Any]]:
    """Parse ``--mounts``: ``type=bind,src=/a,dst=/b,readonly,type=…``, in which each mount begins with its type."""
    found: list[dict[str, Any]] = []
    for word in words(text):
        name, equals, value = word.partition("=")
        if name == "type" or not found:
            found.append({})
        found[-1][_OF_MOUNTS.get(name, name)] = value if equals else True
    return [each if each.get("type") == "bind" else {"type": each.get("type")} for each in found]


def _amount(value: Any) -> int | None:
    return None if number(value) == _NO_VALUE else number(value)


KEYS = Keys(
    {
        **handled_elsewhere(
            {
                "roles": "tasks",
                "role.<type>.name": "tasks",
                "role.<type>.entrypoint": "tasks.<type>.command",
                "role.<type>.args": "tasks.<type>.command",
                "role.<type>.retry_policy": "framework",
            }
        ),
        "name": mapped_to("name"),
        "metadata": left_out("`tags` and `env` can describe the job", "tags"),
        "role.<type>.num_replicas": mapped_to("tasks.<type>.instances", number),
        "role.<type>.min_replicas": mapped_to("tasks.<type>.min_instances", positive_or_none),
        "role.<type>.image": carried_by(_image, "tasks.<type>.docker.image"),
        "role.<type>.env": carried_by(_environment, "tasks.<type>.env"),
        "role.<type>.max_retries": carried_by(_retries, "restart.budget"),
        "role.<type>.resource.cpu": mapped_to("tasks.<type>.vcores", _amount),
        "role.<type>.resource.gpu": mapped_to("tasks.<type>.gpus", lambda value: _amount(value) or None),
        "role.<type>.resource.memMB": mapped_to("tasks.<type>.memory", _amount),
        **dict.fromkeys(
            ("role.<type>.resource.capabilities", "role.<type>.resource.tags"),
            left_out("`node_label` selects the nodes", "node_label"),
        ),
        "role.<type>.resource.devices": left_out("`resources` of the task type, by YARN's names", "resources"),
        "role.<type>.port_map": left_out("`TONY_PORT` is the task's port; the others find it in `TONY_CLUSTER_SPEC`"),
        "role.<type>.mounts": carried_by(_mounts, "tasks.<type>.docker.mounts"),
        "role.<type>.base_image": left_out("of no use since TorchX 0.1"),
        "role.<type>.workspace": left_out("`files`", "files"),
        **dict.fromkeys(("role.<type>.metadata", "role.<type>.overrides"), left_out("for TorchX's schedulers")),
    }
)

OPTIONS = Keys(
    {
        **handled_elsewhere(
            {
                "j": "tasks.<type>.instances",
                "script": "tasks.<type>.command",
                "m": "tasks.<type>.command",
                "name": "name",
                "image": "tasks.<type>.docker.image",
                "h": "tasks.<type>.memory",
                "cpu": "tasks.<type>.vcores",
                "gpu": "tasks.<type>.gpus",
                "memMB": "tasks.<type>.memory",
                "env": "tasks.<type>.env",
                "max_retries": "restart.budget",
                "max_restarts": "restart.budget",
                "num_replicas": "tasks.<type>.instances",
                "msg": "tasks.<type>.command",
                "mounts": "tasks.<type>.docker.mounts",
            }
        ),
        **dict.fromkeys(
            ("rdzv_port", "rdzv_backend", "rdzv_endpoint", "rdzv_conf"),
            left_out("the application master runs the rendezvous, and each process receives its rank"),
        ),
        "debug": left_out("`env` may have TORCH_DISTRIBUTED_DEBUG and others", "env"),
        "tee": left_out("the output of every process is kept"),
        "metadata": left_out("`tags` and `env` can describe the job", "tags"),
    }
)


# -- app definitions ---------------------------------------------------------------------------------------------------


def _knows(source: Source) -> bool:
    if source.calls(_is_call):
        return True
    plain = source.document
    return plain is not None and isinstance(plain.get("roles"), list)


def _is_call(given: Sequence[str]) -> bool:
    return PurePosixPath(given[0]).name == "torchx"


def _read(source: Source) -> Draft:
    plain = source.document
    if plain is not None and isinstance(plain.get("roles"), list):
        return _app(plain)
    return _call(source.arguments(_is_call, "is not an AppDef (a mapping with `roles`), and has no call of torchx"))


def _app(plain: Mapping[str, Any]) -> Draft:
    draft = Draft()
    roles = [each for each in plain["roles"] if isinstance(nested_mapping(each).get("name"), str) and each["name"]]
    if len(roles) < len(plain["roles"]):
        draft.leave_out("roles", "one of the roles has no name")
    runs = {each["name"]: _run_of(draft, each) for each in roles}
    for name in runs:
        draft.put(("tasks", draft.service_type(name), "instances"), 1, "num_replicas")
    _framework(draft, roles, runs)
    KEYS.carry_all(draft, plain)
    for each in roles:
        KEYS.carry_all(draft, {"role": {each["name"]: each}})
        _put_command(draft, each["name"], runs[each["name"]])
    for name, task in draft.tasks.items():
        if task.get("min_instances") == task["instances"]:  # TorchX writes the key even if all instances are required
            draft.remove(("tasks", name, "min_instances"))
    return draft


def _run_of(draft: Draft, role: Mapping[str, Any]) -> RoleCommand:
    entrypoint = str(role.get("entrypoint") or "")
    args = role.get("args") or []
    if not isinstance(args, list):
        draft.leave_out(f"role.{role['name']}.args", "should be a list", args)
        args = []
    if not entrypoint or entrypoint == "<MISSING>":
        return RoleCommand([])
    return command_of(draft, f"role.{role['name']}", entrypoint, [str(each) for each in args])


def _framework(draft: Draft, roles: Sequence[Mapping[str, Any]], runs: Mapping[str, RoleCommand]) -> None:
    alone = len(roles) == 1 and str(roles[0].get("num_replicas", 1)) == "1"
    if any(run.is_torchrun for run in runs.values()):
        framework = "pytorch"
    elif alone or all(str(each.get("retry_policy", "")).upper() == "REPLICA" for each in roles):
        framework = "standalone"
    else:
        framework = "generic"  # TorchX restarts all roles
    draft.put("framework", framework, "retry_policy")


def _put_command(draft: Draft, role: str, run: RoleCommand) -> None:
    name = draft.task_type(role)
    draft.no_command[name] = "the role runs the entry point of its image, which is unknown here"
    if not run.words:
        return
    draft.put(("tasks", name, "command"), " ".join(map(shell_word, run.words)), f"role.{role}.args")
    if program := next((word for word in run.words if word.endswith(".py") and not word.startswith("/")), None):
        why = f"{program} is expected in the image, as in TorchX; if the image lacks it, name it in `files`"
        draft.leave_out(f"role.{role}.args", why)
    if run.processes != "1":
        draft.put(("tasks", name, "processes"), run.processes, f"role.{role}.args")
    if unknown := [each for each in MACRO.findall(" ".join(run.words)) if each not in MACROS]:
        draft.leave_out(f"role.{role}.args", f"${{{unknown[0]}}} is replaced only by TorchX, not here")


# -- calls -------------------------------------------------------------------------------------------------------------


def _call(given: Sequence[str]) -> Draft:
    """Convert a call ``torchx run [options] COMPONENT [options] [-- arguments]``."""
    given = list(given[1:]) if given[0] == "run" else list(given)
    run = read_options(given, flags=FLAGS)
    if not run.rest:
        raise NotImportable("the call of torchx names no component, such as dist.ddp")
    component, *arguments = run.rest
    component = component.removeprefix("torchx.components.")
    options = read_options(arguments)
    draft = Draft()
    for name, value in run.given:
        draft.leave_out(f"torchx run -{name}", "the connection says where the job runs", value)
    if component in ("dist.ddp", "dist.spmd"):
        _distributed(draft, options, component)
    elif component in ("utils.sh", "utils.python", "utils.echo"):
        _utility(draft, options, component)
    else:
        raise NotImportable(
            f"{component} is not a supported component (dist.ddp, dist.spmd, utils.sh, utils.python, utils.echo); "
            "write the AppDef that it returns as JSON: json.dumps(dataclasses.asdict(app))"
        )
    OPTIONS.carry_options(draft, options.given, f"{component} --", "unknown option")
    return draft


def _distributed(draft: Draft, options: Options, component: str) -> None:
    script, module = options.last("script"), options.last("m")
    if (script is None) == (module is None):
        raise NotImportable(f"{component} needs exactly one of --script and -m")
    nodes = _NODES.fullmatch(options.last("j") or ("1x2" if component == "dist.ddp" else "1x1"))
    if nodes is None:
        raise NotImportable(f"{component} -j {options.last('j')}: should be NODESxPROCESSES, such as 2x4 or 1:2x4")
    role = (module or PurePosixPath(script or "").stem).rpartition(".")[2]
    name = draft.service_type(role)
    draft.put("framework", "pytorch", component)
    draft.put("name", (options.last("name") or role).rpartition("/")[2] or role, "--name")
    draft.put(("tasks", name, "instances"), number_of("-j", nodes["nodes"] or 1), "-j")
    if nodes["least"] and nodes["least"] != nodes["nodes"]:
        draft.put(("tasks", name, "min_instances"), number_of("-j", nodes["least"]), "-j")
    if number_of("-j", nodes["processes"]) > 1:
        draft.put(("tasks", name, "processes"), number_of("-j", nodes["processes"]), "-j")
    if script is not None and not script.startswith("/"):
        draft.add("files", script, "--script")
        script = PurePosixPath(script).name
    elif module is not None:
        draft.leave_out("-m", "name the module's files in `files`, unless the environment has the module", module)
    given = ["python", *(["-m", module] if module else [str(script)]), *options.rest]
    draft.put(("tasks", name, "command"), " ".join(map(shell_word, given)), "--script")
    default = "gpu.small" if component == "dist.spmd" else None
    _of_options(draft, role, options, default, {"cpu": 2, "gpu": 0, "memMB": 1024})


def _utility(draft: Draft, options: Options, component: str) -> None:
    role = component.rpartition(".")[2]
    name = draft.task_type(role)
    draft.put("framework", "standalone", component)
    draft.put("name", role, component)
    draft.put(
        ("tasks", name, "instances"), number_of("--num_replicas", options.last("num_replicas") or "1"), "--num_replicas"
    )
    given = list(options.rest)
    if component == "utils.echo":
        given = ["echo", options.last("msg") or "hello world"]
    elif component == "utils.python":
        script, module = options.last("script"), options.last("m")
        if script is not None:
            draft.add("files", script, "--script")
        given = ["python", *(["-m", module] if module else [PurePosixPath(script or "").name]), *given]
    if given:
        draft.put(("tasks", name, "command"), " ".join(map(shell_word, given)), component)
    _of_options(draft, role, options, None, {"cpu": 1, "gpu": 0, "memMB": 1024})


def _of_options(draft: Draft, role: str, options: Options, default: str | None, size: dict[str, int]) -> None:
    named = options.last("h") or default
    if named in _SIZES:
        vcores, gpus, gibibytes = _SIZES[named]
        size = {"cpu": vcores, "gpu": gpus, "memMB": int(gibibytes * 1024)}
        draft.leave_out("-h", "TorchX may change this size; the job has the size of TorchX 0.7", named)
    elif named is not None:
        draft.leave_out("-h", "is not a known size; give memory, vcores and gpus", named)
    else:
        size = {each: number_of(f"--{each}", options.last(each) or value) for each, value in size.items()}
    KEYS.carry_all(draft, {f"role.{role}.resource.{each}": value for each, value in size.items()})
    if env := options.last("env"):
        KEYS.carry(draft, f"role.{role}.env", pairs(env.split(",")))
    KEYS.carry(draft, f"role.{role}.max_retries", options.last("max_retries") or options.last("max_restarts") or 0)
    if image := options.last("image"):
        KEYS.carry(draft, f"role.{role}.image", image)
    else:
        draft.leave_out("--image", _IMAGE)
    if mounts := options.last("mounts"):
        KEYS.carry(draft, f"role.{role}.mounts", _mounts_of_words(mounts))


SYSTEM = System(
    name="torchx",
    title="TorchX",
    page="from-torchx",
    takes="an AppDef in JSON or YAML, or a call of `torchx run` with dist.ddp, dist.spmd or utils.…",
    keys=(KEYS, OPTIONS),
    knows=_knows,
    read=_read,
    is_call=_is_call,
)
