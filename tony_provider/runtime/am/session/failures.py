"""Failures with messages that users can act on, and the detection of faulty nodes and stalled processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Optional

import attrs

from tony_provider.runtime.am import descriptions
from tony_provider.runtime.am.descriptions import error_hint
from tony_provider.runtime.am.resource_manager import ContainerExit, ExitReason
from tony_provider.runtime.am.session.session_state import ProcessEnd, SessionState, Task
from tony_provider.runtime.checkpoint.resume_point import ResumePoint
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.quantities import count, some
from tony_provider.runtime.protocol.status import Failure, FailureKind

NOT_RUNNABLE = (contract.EXIT_NOT_EXECUTABLE, contract.EXIT_NOT_FOUND)
KILL_SIGNALS = (9, 15)
"""SIGKILL and SIGTERM. Another program has sent these signals, so the killed program is not the cause."""
_OUT_OF_MEMORY = (ExitReason.EXCEEDED_MEMORY, ExitReason.EXCEEDED_VIRTUAL_MEMORY)
_TAKEN_BACK = (ExitReason.PREEMPTED, ExitReason.MADE_ROOM)
"""Exit reasons of containers that the cluster took back for other applications."""


def of_process(task: Task, end: ProcessEnd, *, started: bool) -> Failure:
    """Return the failure of a user process that failed or could not be started."""
    what = f"{_where(task)}{':' if end.process else ''} {end.in_words}"
    known = end.node_problem or error_hint(end.output_tail)
    is_killed = (end.signal or contract.killing_signal(end.exit_code)) in KILL_SIGNALS
    output = descriptions.program_output(end.output_tail)
    failure = _failure(
        task,
        _process_kind(end, started),
        f"{what}; {known}" if known else what,
        output,
        exit_code=None if end.signal else end.exit_code,
        signal=end.signal or None,
    )
    return failure if end.stopped or is_killed else attrs.evolve(failure, cause=descriptions.cause(output))


def of_early_end(task: Task, others: Sequence[Task], seconds: float) -> Failure:
    """Return the failure of a parameter server that ended by itself ``seconds`` ago, before ``others`` succeeded."""
    message = (
        f"{_where(task)} ended with exit code 0, and {some(other.name for other in others)} had not succeeded "
        f"{seconds:.0f} s later; a ps must run until it is stopped, and is not restarted"
    )
    return _failure(task, FailureKind.USER, message, task.end.output_tail if task.end else "", exit_code=0)


def of_container(task: Task, exit: ContainerExit, diagnostics: str) -> Failure:
    """Return the failure of a task whose container ended before the executor reported the end of the task."""
    output = (task.end.output_tail if task.end else "") or task.last_words or diagnostics
    when = "" if task.host else " before its executor had registered"
    message = f"the container of {_where(task)} {descriptions.container_exit(exit)}{when}"
    return _failure(task, _container_kind(task, exit.reason), message, output, exit_code=exit.exit_code)


def of_launch(task: Task, reason: str) -> Failure:
    """Return the failure of a task whose container a node refused to start."""
    return _failure(task, FailureKind.LAUNCH, f"{_where(task)} could not be started: {reason}")


def of_registration(tasks: Sequence[Task], seconds: float) -> Failure:
    """Return the failure of tasks whose executors did not register in time."""
    message = (
        f"not registered within {seconds:g} s (timeouts.registration): "
        f"{some(_where(task) for task in tasks)}. "
        "The node may be slow to copy files, or may not reach the application master; see the container's log"
    )
    return _failure(tasks[0], FailureKind.REGISTRATION_TIMEOUT, message)


def of_silence(task: Task, seconds: float) -> Failure:
    """Return the failure of a task whose executor has sent nothing for ``seconds``."""
    kind = FailureKind.PREEMPTED if task.preempted else FailureKind.CONTAINER_LOST
    return _failure(task, kind, f"{_where(task)} was lost: its executor sent nothing for {seconds:.0f} s")


def of_stop(task: Task) -> Failure:
    """Return the failure of a task whose executor does not stop its user process on request."""
    return _failure(task, FailureKind.CONTAINER_LOST, f"{_where(task)} did not stop its user process in time")


def of_stall(task: Task, seconds: float) -> Failure:
    """Return the failure of a task whose user process has reported no step for ``seconds``."""
    step = task.process.step if task.process else None
    last = "reported no step" if step is None else f"reported no step after step {step}"
    message = f"{_where(task)} {last} for {seconds:g} s (timeouts.stall); its log has the stacks of its threads"
    return _failure(task, FailureKind.STALLED, message)


def of_preparation(task: Task, resume: Optional[ResumePoint], reason: str, *, unfit: bool = False) -> Failure:
    """Return the failure of a task whose start could not be prepared.

    ``resume``: None without a checkpoint. ``unfit``: the node has failed the preflight.
    """
    is_nodes = unfit or bool(node_problem_in(reason))
    if resume is None:
        kind = FailureKind.NODE if is_nodes else FailureKind.LAUNCH
        return _failure(task, kind, f"{_where(task)} could not prepare for its user process: {reason}")
    message = f"{_where(task)} could not restore {resume.label}: {reason}"
    return _failure(task, FailureKind.NODE if is_nodes else FailureKind.CHECKPOINT, message)


def of_upload(task: Task, end: ProcessEnd) -> Failure:
    """Return the failure of a task whose user process succeeded, but whose files could not be stored."""
    return _failure(task, FailureKind.UPLOAD, f"{_where(task)} has succeeded, but {end.not_kept}", "", exit_code=0)


def of_absence(task: Task) -> Failure:
    """Return the failure of a lost task that ran under a former application master."""
    message = f"{task.name} was lost while no application master was running: its executor did not reconnect"
    return _failure(task, FailureKind.CONTAINER_LOST, message)


def given_up(failure: Failure, why: str, *, permanent: bool = False) -> Failure:
    """Return the failure with the reason for giving up appended to its first line."""
    first, newline, rest = failure.message.partition("\n")
    message = f"{first}; {why}{newline}{rest}" if why else failure.message
    return attrs.evolve(failure, message=message, permanent=permanent)


def _container_kind(task: Task, reason: ExitReason) -> FailureKind:
    if reason in _OUT_OF_MEMORY:
        return FailureKind.OUT_OF_MEMORY
    if task.preempted or reason in _TAKEN_BACK:
        return FailureKind.PREEMPTED
    return FailureKind.CONTAINER_LOST if task.host else FailureKind.LAUNCH


def _process_kind(end: ProcessEnd, started: bool) -> FailureKind:
    if end.out_of_memory:
        return FailureKind.OUT_OF_MEMORY
    if end.node_problem and not end.stopped:
        return FailureKind.NODE
    if end.exit_code in NOT_RUNNABLE or (end.error and not started):
        return FailureKind.LAUNCH
    if end.error and end.exit_code == 0 and not end.signal:
        return FailureKind.INTERNAL
    return FailureKind.CONTAINER_LOST if end.stopped else FailureKind.USER


def _where(task: Task) -> str:
    return f"{task.name} on {task.node}" if task.node else task.name


def _failure(
    task: Task,
    kind: FailureKind,
    message: str,
    tail: str = "",
    *,
    exit_code: Optional[int] = None,
    signal: Optional[int] = None,
) -> Failure:
    if last := descriptions.last_lines(tail):
        message = f"{message}\n{last}"
    return Failure(kind, message, task.name, exit_code, signal)


_PROBLEMS = (
    (r"No space left on device|Disk quota exceeded", "a disk of its node is full"),
    (r"Read-only file system", "a disk of its node is read-only"),
    (r"Input/output error", "a disk of its node is broken"),
    (r"Address already in use|EADDRINUSE", "a port is in use on its node"),
)
_GPU_PROBLEMS = (
    (r"uncorrectable ECC|GPU is lost|GPU has fallen off the bus", "a GPU of its node is broken"),
    (r"no CUDA-capable device is detected|CUDA driver version is insufficient", "no GPU of its node can be used"),
)
"""``_PROBLEMS`` and ``_GPU_PROBLEMS`` map error messages of the C library, CUDA and NVIDIA's driver to problems."""
_SHARED_LIBRARY = re.compile(r"error while loading shared libraries|cannot open shared object file")
_IMPORT_ERROR = re.compile(
    r"(?:ModuleNotFound|Import)Error\b|"
    r"\S+: (?:No module named (?!\S+\.__main__;)|Error while finding module |can't open file )"
)
_UNREADABLE = re.compile(r"Stale file handle|Input/output error|Transport endpoint|timed out")
FIRST_SECONDS = 60.0  # from the start of a process; imports of large libraries from a slow disk take this long
_PROGRAMS = {contract.EXIT_NOT_FOUND: "a program", contract.EXIT_NOT_EXECUTABLE: "permission to execute a program"}


def node_problem_in(text: str, *, gpus: bool = False) -> str:
    """Return what a node lacks according to an error message, or "". ``gpus``: whether the task has GPUs."""
    table = (*_PROBLEMS, *_GPU_PROBLEMS) if gpus else _PROBLEMS
    return next((problem for pattern, problem in table if re.search(pattern, text, re.IGNORECASE)), "")


def peers_on_other_nodes(task: Task, state: SessionState) -> list[Task]:
    """Return the tasks of the same type on other nodes, which need the same programs and libraries."""
    return [each for each in state.tasks if each.type == task.type and each.node != task.node]


def suspected_node_problem(task: Task, failure: Failure, state: SessionState) -> str:
    """Return what the task's node lacks, judging by the program's last error or by tasks on other nodes, or "".

    This is only a suspicion. If the failure recurs on another node, the program is the cause.
    """
    if failure.kind not in (FailureKind.USER, FailureKind.LAUNCH) or (task.process and task.process.end is None):
        return ""
    lacks = missing_on_node(failure)
    if lacks is None:
        return node_problem_in(descriptions.last_error(failure.message.partition("\n")[2]), gpus=task.spec.gpus > 0)
    if task.process and task.process.stepped:  # a process that took a step lacked nothing
        return ""
    if running := [peer for peer in peers_on_other_nodes(task, state) if peer.runs]:
        return f"its node lacks {lacks} that {running[0].node} has"
    if (lacks, descriptions.essence(failure.cause)) not in state.nodes_without or certain_to_recur(failure, state):
        return ""
    return f"its node lacks {lacks} that other nodes may have"


def certain_to_recur(failure: Failure, state: SessionState) -> str:
    """Return why another application would fail like this process, which lacked something at its start, or ""."""
    lacks = missing_on_node(failure)
    nodes = state.nodes_without.get((lacks, descriptions.essence(failure.cause)), ())
    if len(nodes) < min(2, state.nodes_in_cluster or 2):
        return ""
    where = "the cluster's only node lacks" if len(nodes) == 1 else f"{len(nodes)} nodes lack"
    return f"{where} {lacks}, so a retry would fail the same way"


def node_problem_kind(problem: str) -> str:
    """Return the problem without the name of the node that was compared."""
    return problem.partition(" that ")[0]


def as_node_failure(failure: Failure, problem: str) -> Failure:
    """Return the failure with kind NODE, and with the problem in the first line of its message."""
    first, newline, rest = failure.message.partition("\n")
    return attrs.evolve(failure, kind=FailureKind.NODE, message=f"{first}; {problem}{newline}{rest}")


def missing_on_node(failure: Failure) -> Optional[str]:
    """Return what a program lacked, perhaps only on this node, according to its failure. Return None if unknown."""
    if failure.kind is FailureKind.LAUNCH:
        return _PROGRAMS.get(failure.exit_code or 0)
    if failure.kind is not FailureKind.USER:
        return None
    if _SHARED_LIBRARY.search(failure.message):
        return "a shared library"
    # A program may handle an import error and fail later.
    is_last = _IMPORT_ERROR.match(failure.cause) and failure.message.rstrip().endswith(failure.cause)
    return "a Python module or script" if is_last else None


def note_missing(task: Task, failure: Failure, state: SessionState, now: float) -> None:
    """Note the node of a process that lacked something within its first seconds."""
    process, missing = task.process, missing_on_node(failure)
    if (
        missing
        and not _UNREADABLE.search(failure.message)
        and process
        and not process.stepped
        and now - (process.started_at or now) <= FIRST_SECONDS
    ):
        state.nodes_without.setdefault((missing, descriptions.essence(failure.cause)), set()).add(task.node or "")


_PLACES = 3  # limit of different stacks in a message
_FRAMES = 12  # limit of frames of each stack in a message
_COLLECTIVE = re.compile(
    r"distributed|collective|horovod|mpi4py|multihost|barrier|all_?(reduce|gather|to_?all)|broadcast", re.IGNORECASE
)


@attrs.define
class _Place:
    """Processes that hang with the same stack."""

    frames: tuple[str, ...]
    tasks: list[str]  # names of tasks, or of processes if a task has several processes
    processes: list[str]

    @property
    def order(self) -> tuple[bool, int]:
        """Sort key by which the stack that probably explains the stall comes first."""
        return any(map(_COLLECTIVE.search, self.frames)), len(self.processes)

    @property
    def text(self) -> str:
        more = [f"  and {len(self.frames) - _FRAMES} more"] if len(self.frames) > _FRAMES else []
        frames = [f"  {frame}" for frame in self.frames[:_FRAMES]]
        return "\n".join([f"{some(self.processes)}:", *frames, *more])


def with_stacks(failure: Failure, tasks: Iterable[Task]) -> Failure:
    """Return the failure of a stall with the stacks of these tasks' processes.

    Stacks that wait in a collective operation come last. Among all other stacks, the rarest come first. If a single
    task has the first stack, the failure names that task, because the others probably wait for it.
    """
    places = sorted(_places(tasks), key=lambda place: place.order)
    if not places:
        return failure
    first = places[0]
    others = {task for place in places for task in place.tasks} - {*first.tasks}
    summary = f"{some(dict.fromkeys(first.tasks))} at {first.frames[0]}"
    if others:
        summary += f", unlike {count(len(others), 'other')}"
    shown = "\n".join(place.text for place in places[:_PLACES])
    guilty = {name.partition(" ")[0] for name in first.tasks}
    task = guilty.pop() if others and len(guilty) == 1 else failure.task
    return attrs.evolve(failure, task=task, message=f"{failure.message}; {summary}\n{shown}")


def _places(tasks: Iterable[Task]) -> Iterable[_Place]:
    found: dict[tuple[str, ...], _Place] = {}
    for task in tasks:
        for stack in (task.process.stacks or ()) if task.process else ():
            if stack.frames:
                place = found.setdefault(stack.frames, _Place(stack.frames, [], []))
                name = f"{task.name} {stack.process}".rstrip()
                place.tasks.append(name)
                place.processes.append(f"{name} (process {stack.pid}, {stack.command})")
    return found.values()
