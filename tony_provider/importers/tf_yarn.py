"""Import tf-yarn jobs from Python source with one call of ``run_on_yarn(…)``.

The source is parsed and never executed. The importer evaluates constants, simple expressions of constants, and names
that are assigned only once. It lists all other values as not carried over.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import attrs

from tony_provider.importers.job_source import Source, System
from tony_provider.importers.key_table import (
    BadValue,
    Draft,
    KeyPath,
    Keys,
    NotImportable,
    argument,
    carried_by,
    handled_elsewhere,
    left_out,
    mapped_to,
    memory,
    nested_mapping,
    number,
    positive_or_none,
)
from tony_provider.runtime.jobspec.container_content import EnvironmentKind, python_env_kind
from tony_provider.runtime.jobspec.model import TENSORBOARD, PythonEnv

_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST = 1 << 62
_DEEPEST = 50
_LONGEST = 100_000  # maximum characters of a concatenated text


class Computed(ValueError):  # noqa: N818 - named for what is wrong
    """The value of an expression is known only when the program runs. The message is the source of the expression."""

    def __init__(self, node: ast.expr) -> None:
        super().__init__(ast.unparse(node))


@attrs.frozen
class PythonSource:
    """The syntax tree of a program, and the expressions that it assigns to names."""

    tree: ast.Module
    name: str  # file name
    _known: dict[ast.expr, Any] = attrs.field(factory=dict, repr=False)  # cache of evaluated expressions
    # the expressions assigned to a name; None for a value without a plain assignment, such as a loop variable
    _values: Mapping[str, Sequence[ast.expr | None]] = attrs.field(init=False, repr=False)
    _modules: Mapping[str, str] = attrs.field(init=False, repr=False)  # local name of an imported module -> module

    @_values.default
    def _values_of_names(self) -> Mapping[str, Sequence[ast.expr | None]]:
        """Return the assigned expressions of each name, with None for each loop and function parameter that sets it."""
        alone = {
            id(to): node.value
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            for to in (node.targets if isinstance(node, ast.Assign) else [node.target])
        }
        found: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, []).append(alone.get(id(node)))
            elif isinstance(node, ast.arg):
                found.setdefault(node.arg, []).append(None)
        return found

    @_modules.default
    def _modules_of_names(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                above = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
                for alias in node.names:
                    found.setdefault(alias.asname or alias.name, f"{above}{alias.name}")
        return found

    @classmethod
    def parse(cls, text: str, name: str) -> PythonSource:
        """Parse the text. Raises NotImportable if the text is not valid Python."""
        try:
            return cls(ast.parse(text), PurePath(name).name)
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise NotImportable(f"{name}: is not Python ({error})") from error

    def calls(self, name: str) -> Iterator[ast.Call]:
        """Yield the calls of a function with this name, in any module or object."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and called(node) == name:
                yield node

    def imports(self) -> Iterator[str]:
        """Yield the names of the imported modules."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of an expression. Raises Computed."""
        if depth > _DEEPEST:
            raise Computed(node)
        if node not in self._known:
            self._known[node] = self._value(node, depth)
        return self._known[node]

    def _value(self, node: ast.expr, depth: int) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._number(-self._number(self.value(operand, depth + 1), node), node)
            case ast.BinOp(left=left, op=op, right=right):
                return self._calculated(node, op, self.value(left, depth + 1), self.value(right, depth + 1))
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return [self.value(each, depth + 1) for each in elements]
            case ast.Name(id="__file__"):
                return self.name
            case ast.Name(id=name):
                return self.value(self._assigned(name, node), depth + 1)
            case ast.Attribute(value=ast.Name(id=module), attr="__file__"):
                return f"{self._modules.get(module, module).replace('.', '/')}.py"
            case ast.Call(args=[argument]) if ast.unparse(node.func) in (
                "os.path.basename",
                "path.basename",
                "basename",
            ):
                return PurePath(str(self.value(argument, depth + 1))).name
        raise Computed(node)

    def pairs(self, node: ast.expr) -> Iterator[tuple[ast.expr | None, ast.expr]]:
        """Yield the items of a dict literal, also if a name has it as value. For ``**mapping``, the key is None."""
        if isinstance(node, ast.Name):
            node = self._assigned(node.id, node)
        if not isinstance(node, ast.Dict):
            raise Computed(node)
        yield from zip(node.keys, node.values, strict=True)

    def _assigned(self, name: str, node: ast.expr) -> ast.expr:
        """Return the value of a name that is assigned exactly once. Raises Computed."""
        found = self._values.get(name, ())
        if len(found) != 1 or found[0] is None:
            raise Computed(node)
        return found[0]

    def _calculated(self, node: ast.expr, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(left, str) and isinstance(right, str) and isinstance(op, ast.Add):
            if len(left) + len(right) > _LONGEST:
                raise Computed(node)
            return left + right
        left, right = self._number(left, node), self._number(right, node)
        if isinstance(op, ast.Pow) and 0 <= right <= 62 and abs(left) <= 10:
            return self._number(left**right, node)
        if (calculate := _ARITHMETIC.get(type(op))) is None or (right == 0 and isinstance(op, ast.FloorDiv)):
            raise Computed(node)
        return self._number(calculate(left, right), node)

    @staticmethod
    def _number(value: Any, node: ast.expr) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > _LARGEST:
            raise Computed(node)
        return value


def called(node: ast.expr) -> str:
    """Return the last part of a called function's name, or an empty string if the node is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


_CALL = "run_on_yarn"
_CPU = "cpu"  # tf-yarn's name for nodes without a label
_LABELS = ("NodeLabel", "TaskFlavor")
_ACCESS = ("view_users", "view_groups", "modify_users", "modify_groups")
_NAMES = ("experiment_fn", "task_specs")  # names of the positional arguments
_OLDER_NAMES = ("pyenv_zip_path", *_NAMES)
_EXPERIMENT = "PytorchExperiment"
_OF_EXPERIMENT = ("model", "main_fn", "train_dataset", "dataloader_args", "n_workers_per_executor")
_OF_SPEC = ("memory", "vcores", "instances", "nb_proc_per_worker", "label")
_COMPUTED = "is computed when the program runs, so the value is unknown"


def _environment(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    draft.put_environment((), nested_mapping(value), key, " ")


def _python_env(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    """Carry over one environment for all task types, or one for each node label."""
    if not isinstance(value, Mapping):
        _put_env(draft, (), key, value)
        return
    for name, task in draft.tasks.items():
        label = task.get("node_label", _CPU)
        if label in value:
            _put_env(draft, ("tasks", name), f"{key} {label}", value[label])
        else:
            draft.leave_out(key, f"has no environment for {label}, which {name} needs", dict(value))


def _put_env(draft: Draft, above: KeyPath, key: str, value: Any) -> None:
    if isinstance(value, str) and python_env_kind(PythonEnv(value)) in (EnvironmentKind.ARCHIVE, EnvironmentKind.PEX):
        draft.put((*above, "python_env"), value, key)
    else:
        draft.leave_out(key, "`python_env` is an archive of venv-pack or conda-pack, or a PEX", value)


def _access(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    """Carry over the arguments of Skein's ``ACLs(…)``. Without them, tf-yarn lets everyone view the job."""
    for name, given in value.items():
        if name in _ACCESS:
            who, what = name.split("_")
            draft.put(("acls", who, what), given, f"{key} {name}")
        elif name != "enable":
            draft.leave_out(f"{key} {name}", "only the users and groups of `acls.view` can open the job's page", given)


def _files(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    for target, source in nested_mapping(value).items():
        draft.add_file("files", str(source), target, key)


def _task_module(draft: Draft, key: str, value: Any, _names: Sequence[str]) -> None:
    if "gloo_allred" in str(value):
        draft.put("framework", "horovod", key)
    else:
        draft.leave_out(key, "`command` says what runs", value)


KEYS = Keys(
    {
        "experiment_fn": left_out(
            "a function is not a program: write it as a program for `command` and `files`, or use @task.tony",
            "command",
        ),
        **handled_elsewhere({"task_specs": "tasks"}),
        "pyenv_zip_path": carried_by(_python_env, "python_env"),
        "files": carried_by(_files, "files"),
        "env": carried_by(_environment, "env"),
        "queue": mapped_to("queue"),
        "name": mapped_to("name"),
        "nb_retries": argument("retries", positive_or_none),
        "custom_task_module": carried_by(_task_module, "framework"),
        "pre_script_hook": left_out(
            "put it at the start of `command`; `hadoop: true` sets Hadoop's environment", "command"
        ),
        "acls": carried_by(_access, "acls"),
        "file_systems": left_out("`hadoop: true` in the job, and `other_hdfs` of the connection", "other_hdfs"),
        "skein_client": left_out("the connection says where jobs run"),
        "eval_monitor_log_thresholds": left_out("an evaluator reports its measurements with `tony_sdk.report`"),
        "cuda_runtime_hdfs_path": left_out("the environment of the job has its CUDA libraries", "python_env"),
    }
)
TASK_KEYS = Keys(
    {
        "task.<type>.memory": mapped_to("tasks.<type>.memory", memory),
        "task.<type>.vcores": mapped_to("tasks.<type>.vcores", number),
        "task.<type>.instances": mapped_to("tasks.<type>.instances", number),
        "task.<type>.nb_proc_per_worker": mapped_to(
            "tasks.<type>.processes", lambda value: number(value) if number(value) > 1 else None
        ),
        **dict.fromkeys(
            ("task.<type>.label", "task.<type>.flavor"),
            mapped_to("tasks.<type>.node_label", lambda value: str(value) or None),
        ),
        "task.<type>.tb_model_dir": left_out(
            "`tensorboard: true` shows what programs write into TONY_TENSORBOARD_DIR", "tensorboard"
        ),
        "task.<type>.tb_extra_args": left_out("TensorBoard's arguments cannot be set", "tensorboard"),
        "task.<type>.tb_termination_timeout_seconds": left_out("TensorBoard ends with the job", "tensorboard"),
    }
)


def _knows(source: Source) -> bool:
    return source.is_file and f"{_CALL}(" in source.text and not source.begins_like_xml


def _read(source: Source) -> Draft:
    program = PythonSource.parse(source.text, source.label)
    calls = list(program.calls(_CALL))
    if len(calls) != 1:
        lines = ", ".join(str(each.lineno) for each in calls)
        raise NotImportable(
            f"{source.label}: has {len(calls)} calls of {_CALL}"
            + (f" (lines {lines}); give a file with one" if calls else "")
        )
    draft = Draft()
    draft.put("framework", _framework(program), _CALL)
    given = _arguments(draft, calls[0])
    _tasks(draft, program, given)
    for name, node in given.items():
        if name != "task_specs":
            _carry(draft, KEYS, name, partial(_value, draft, program, name, node))
    _processes(draft, program)
    for name in draft.tasks:
        draft.no_command[name] = "write the content of experiment_fn as a program"
    return draft


def _framework(program: PythonSource) -> str:
    modules = list(program.imports())
    if any(each.startswith("tf_yarn.pytorch") for each in modules):
        return "pytorch"
    return "standalone" if any(each.startswith("tf_yarn.distributed") for each in modules) else "tensorflow"


def _arguments(draft: Draft, call: ast.Call) -> dict[str, ast.expr]:
    names = _OLDER_NAMES if len(call.args) > len(_NAMES) or _is_specs_named(call) else _NAMES
    for keyword in call.keywords:
        if keyword.arg is None:
            draft.leave_out(f"**{ast.unparse(keyword.value)}", _COMPUTED)
    return _by_name(call, names)


def _by_name(call: ast.Call, names: Sequence[str]) -> dict[str, ast.expr]:
    """Return the arguments of a call by name. ``names`` are the names of the positional arguments."""
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return {**dict(zip(names, call.args, strict=False)), **named}


def _is_specs_named(call: ast.Call) -> bool:
    """Return whether a call has two positional arguments, and passes ``task_specs`` by keyword.

    In such a call, the second positional argument is ``experiment_fn``.
    """
    return len(call.args) == len(_NAMES) and any(each.arg == "task_specs" for each in call.keywords)


def _carry(draft: Draft, keys: Keys, key: str, value: Callable[[], Any]) -> None:
    try:
        found = value()
    except Computed as error:
        known = keys.find(key)
        here = f"; here it is `{known[0].here}`" if known and known[0].here else ""
        draft.leave_out(key, f"{_COMPUTED}{here}", str(error))
        return
    if found is not None:
        keys.carry_options(draft, [(key, found)], unknown="unknown argument")


def _value(draft: Draft, program: PythonSource, name: str, node: ast.expr) -> Any:
    if name in ("experiment_fn", "skein_client"):
        return ast.unparse(node)
    if name == "acls":
        return _acls(program, node)
    if name == "pyenv_zip_path":
        return _environments(program, node)
    if name not in ("files", "env"):
        return program.value(node)
    known = {}
    for key, value in program.pairs(node):
        if key is None:
            draft.leave_out(f"{name} **", _COMPUTED, ast.unparse(value))
            continue
        try:
            known[str(program.value(key))] = program.value(value)
        except Computed as error:
            draft.leave_out(f"{name} {ast.unparse(key)}", _COMPUTED, str(error))
    return known


def _tasks(draft: Draft, program: PythonSource, given: Mapping[str, ast.expr]) -> None:
    if "task_specs" not in given:
        raise NotImportable(f"{_CALL} has no task_specs, so the tasks are unknown")
    try:
        specs = {str(program.value(key)): spec for key, spec in program.pairs(given["task_specs"]) if key is not None}
    except Computed as error:
        raise NotImportable(
            f"task_specs {_COMPUTED}: {error}; write it as a mapping of names to TaskSpec(…)"
        ) from error
    for name, spec in specs.items():
        if not isinstance(spec, ast.Call) or called(spec) != "TaskSpec":
            draft.leave_out(f"task_specs[{name!r}]", f"is not a TaskSpec(…), and {_COMPUTED}", ast.unparse(spec))
        elif name == TENSORBOARD:
            _tensorboard(draft, program, spec)
        else:
            draft.put(("tasks", draft.task_type(name), "instances"), 1, "task_specs")
            for key, node in _by_name(spec, _OF_SPEC).items():
                _carry(draft, TASK_KEYS, f"task.{name}.{key}", partial(_spec_value, program, node))


def _processes(draft: Draft, program: PythonSource) -> None:
    """Carry over the number of processes per worker, which is in ``PytorchExperiment`` in older tf-yarn versions."""
    key = _OF_EXPERIMENT[-1]
    for call in program.calls(_EXPERIMENT):
        given = _by_name(call, _OF_EXPERIMENT)
        if key not in given:
            continue
        try:
            count = number(program.value(given[key]))
        except (Computed, BadValue) as error:
            draft.leave_out(f"{_EXPERIMENT} {key}", f"{_COMPUTED}; here it is `processes` of the task type", str(error))
            continue
        for name, task in draft.tasks.items():
            if count > 1 and "processes" not in task:
                draft.put(("tasks", name, "processes"), count, f"{_EXPERIMENT} {key}")


def _tensorboard(draft: Draft, program: PythonSource, spec: ast.Call) -> None:
    size = {}
    for key, node in _by_name(spec, _OF_SPEC).items():
        full_key = f"task.{TENSORBOARD}.{key}"
        if key not in ("memory", "vcores"):
            _carry(draft, TASK_KEYS, full_key, partial(ast.unparse, node))
            continue
        try:
            size[key] = memory(program.value(node)) if key == "memory" else number(program.value(node))
        except (Computed, BadValue) as error:
            draft.leave_out(full_key, _COMPUTED, str(error))
    draft.put(TENSORBOARD, size or True, "task_specs")


def _spec_value(program: PythonSource, node: ast.expr) -> Any:
    """Return the value of a task's argument. Return None for the label ``CPU``, which means nodes without a label."""
    found = _label(program, node)
    return None if found == _CPU and isinstance(node, ast.Attribute) else found


def _label(program: PythonSource, node: ast.expr) -> Any:
    """Return ``gpu`` for ``NodeLabel.GPU`` (``TaskFlavor.GPU`` in older versions), otherwise the value."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(_LABELS):
        return node.attr.lower()
    return program.value(node)


def _environments(program: PythonSource, node: ast.expr) -> Any:
    try:
        return program.value(node)
    except Computed:
        return {_label(program, key): program.value(value) for key, value in program.pairs(node) if key is not None}


def _acls(program: PythonSource, node: ast.expr) -> dict[str, Any] | None:
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if called(node) != "ACLs" or not isinstance(node, ast.Call) or node.args:
        raise Computed(node)
    return {each.arg: program.value(each.value) for each in node.keywords if each.arg is not None}


SYSTEM = System(
    name="tf-yarn",
    title="tf-yarn",
    page="from-tf-yarn",
    takes="a Python source with one call of run_on_yarn(…), or the call itself",
    keys=(KEYS, TASK_KEYS),
    knows=_knows,
    read=_read,
)
