"""Texts for task resources, exit codes, signals, container exits, and the errors of programs."""

from __future__ import annotations

import re
import signal
from typing import Optional

from tony_provider.runtime.am.resource_manager import ContainerExit, ExitReason
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.quantities import GPU, MEMORY, VCORES, amount
from tony_provider.runtime.common.text import printable
from tony_provider.runtime.jobspec import placement
from tony_provider.runtime.jobspec.model import TaskSpec

_CONTAINER = {
    ExitReason.NOT_PREPARED: "could not be prepared on its node",
    ExitReason.LOST: "was lost: its node or NodeManager failed, or the cluster reclaimed the container",
    ExitReason.DISKS_FAILED: "was lost: too many disks of its node failed",
    ExitReason.PREEMPTED: "was preempted: the cluster gave its resources to another queue or application",
    ExitReason.EXCEEDED_VIRTUAL_MEMORY: "used more virtual memory than it was given, so YARN killed it",
    ExitReason.EXCEEDED_MEMORY: "used more memory than it was given, so YARN killed it; raise the task type's memory",
    ExitReason.GIVEN_BACK: "was stopped by the application master",
    ExitReason.KILLED_BY_CLUSTER: "was killed by the ResourceManager",
    ExitReason.APPLICATION_ENDED: "was killed because its application had ended",
    ExitReason.MADE_ROOM: "was killed by its NodeManager to make room",
    ExitReason.EXCESS_LOGS: "wrote more logs than the cluster allows, so YARN killed it",
}
_SHELL = {
    contract.EXIT_NOT_EXECUTABLE: " (the command cannot be executed)",
    contract.EXIT_NOT_FOUND: " (command not found)",
}
_LAST_LINES = 10  # number of a program's last lines that show why it failed
_WARNING = re.compile(r"\s*(?:\[W\b|W\d{4}\b|WARN)")  # formats of c10d, glog and logging
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ (more|common frames omitted))\s*")


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGTERM``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_code(code: int) -> str:
    """Return the predicate for a process that ended, such as ``ended with exit code 1``."""
    if killer := contract.killing_signal(code):
        return f"ended with exit code {code} (killed by {signal_name(killer)})"
    return f"ended with exit code {code}{_SHELL.get(code, '')}"


def container_exit(exit: ContainerExit) -> str:
    """Return the predicate for the subject "its container", such as ``was preempted: …``."""
    return _CONTAINER.get(exit.reason) or exit_code(exit.status)


def size(task: TaskSpec, node_label: Optional[str] = None) -> str:
    """Return the resources of a task and its placement, such as ``8192 MiB, 1 vcore, 2 GPUs``."""
    wanted = {MEMORY: int(task.memory), VCORES: task.vcores, **({GPU: task.gpus} if task.gpus else {})}
    parts = [amount(name, number) for name, number in wanted.items()]
    parts += [amount(name, each.value, each.units) for name, each in sorted(task.resources.items())]
    label = task.node_label or node_label
    where = placement.describe_placement(task.placement) if task.placement else ""
    return ", ".join([*parts, *([f"node label {label}"] if label else []), *([where] if where else [])])


def without_frames(text: str) -> str:
    """Return the text of a Java exception without its stack frames."""
    return "\n".join(line for line in text.splitlines() if not _FRAME.fullmatch(line))


def last_lines(text: str, *, lines: int = 30, size: int = 4096) -> str:
    """Return the last whole lines of a text, at most ``size`` characters.

    A longer last line is cut at its beginning.
    """
    kept = text.rstrip().splitlines()[-lines:]
    while len(kept) > 1 and sum(len(line) + 1 for line in kept) > size:
        kept.pop(0)
    return "\n".join(kept)[-size:]


def last_traceback(output: str) -> str:
    """Return a program's last lines of output. If they contain Python tracebacks, begin at the last traceback."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()][-_LAST_LINES:]
    begins = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    return "\n".join(lines[begins[-1] :] if begins else lines)


_VARYING = re.compile(
    "|".join(
        [
            # Path up to a YARN ID. Its first directories also differ, between nodes and between disks of a node.
            r"(?:/[^\s'\":,()]*)?\b(?:application|appattempt|container)(?:_e\d+)?(?:_\d+)+",
            r"\x1b\[[0-9;]*[A-Za-z]",  # ANSI colours
            r"(?m:^[IWEF]\d{4} [\d:.]+\s+\d+)",  # glog: severity, date, time, thread
            r"\d{4}[-/]\d\d[-/]\d\d",
            r"(?<!\d)\d{1,2}:\d\d:\d\d\b",
            r"0x[0-9a-f]+",
            r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
            r"\b(?=[a-f]*\d)[0-9a-f]{8,}\b",
            r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",  # addresses
            r"/tmp/[^\s'\":,)]+|\btmp[a-z0-9_]{8}\b",  # noqa: S108 - paths of other programs
            r"\[\d+\]:|==\d+==",  # a process in a log line
            r"\b(?:pid|tid|thread|process|rank|task|replica|chief|worker|ps|generation|attempt|start|try)[\s=:#(\[_-]*\d+",
            r"\d+[.,]\d+",  # seconds, losses
            r"\d{5,}",  # ports, processes, times
        ]
    ),
    re.IGNORECASE,
)


def essence(output: str) -> str:
    """Return a program's last traceback, or its last lines, without parts that vary between runs."""
    return _VARYING.sub("#", last_traceback(output))


def last_error(output: str) -> str:
    """Return the lines with a program's error: the end of its last traceback, or its last two lines.

    Warnings are left out.
    """
    said = last_traceback(output)
    lines = said.splitlines()[-(3 if _TRACEBACK in said else 2) :]
    return "\n".join(line for line in lines if not _WARNING.match(line))


_LINE_PREFIX = re.compile(
    r"^(?: *\| |\[[\w,]+\](?:<\w+>)?: ?|\(\w+ pid=[^)\n]*\) |\d{4}-\d\d-\d\d[T ][\d:.,]+\S* (?:std(?:out|err) [FP] )?)",
    re.MULTILINE,
)
"""Prefixes of exception groups, torchrun, mpirun, Ray, and logs with times."""
_ASIDE = re.compile(
    r"^(?:Exception ignored|Error in atexit|--- Logging error).*\n(?:Traceback| ).*\n(?: .*\n)*.*", re.MULTILINE
)
"""Exceptions that do not end the program."""
_BELOW_FRAMES = re.compile(
    r'^( *)  File ".*\n(?:\1 .*\n|\n)*\1((?!Extension modules|Traceback )(?:\S.*:\n.*\w.*|\S.*))', re.MULTILINE
)
"""The line below Python's stack frames, and the next line if this line ends with a colon."""
_LAUNCHERS = re.compile(r"\b(?:ChildFailedError|CalledProcessError|TrainingFailedError)\b")
"""Exceptions of programs that start the user's program, such as torchrun, accelerate and Ray Train."""
_OF_LAUNCHER = re.compile(
    r"^(?:\[?[EW]\d{4} .*api\.py|(?:ERROR|WARNING):torch\.|Sending process |failed \(exitcode|Traceback )",
    re.MULTILINE,
)
"""The first line that torchrun or accelerate prints after the program's exception."""
_ERROR = re.compile(
    r"(?:Error|Exception|Interrupt)\b(?:: |:?$)|\b(?i:error:|fatal\b|what\(\):|not found|no such file|no module named|"
    r"permission denied|cannot |failed\b(?! \(exitcode)|abort|segmentation fault)"
)
_LATER_LINES = 20  # limit of lines that a program prints after its error
LONGEST_CAUSE = 300


def program_output(output: str) -> str:
    """Return a program's last output, without what its launcher prints after the program's exception."""
    text = _plain(output)
    raised = list(_BELOW_FRAMES.finditer(text))
    of_program = [each.end() for each in raised if not _LAUNCHERS.search(each[2])]
    is_launched = of_program and _LAUNCHERS.search(raised[-1][2])
    after = _OF_LAUNCHER.search(text, of_program[-1]) if is_launched else None
    return text[: after.start()] if after else output


def _plain(output: str) -> str:
    return _ASIDE.sub("", _LINE_PREFIX.sub("", printable(output)))


def cause(output: str) -> str:
    """Return the line of a failed program's last output that names its error, or an empty string.

    This is the last exception, or else the last line that looks like an error. The exception of a launcher counts only
    if the output has no other error.
    """
    text = _plain(program_output(output))
    raised = list(_BELOW_FRAMES.finditer(text))
    of_launcher = raised[0] if raised and _LAUNCHERS.search(raised[-1][2]) else None
    if raised and not of_launcher and text.count("\n", raised[-1].end()) <= _LATER_LINES:
        found = raised[-1][2]
    else:
        lines = text[: of_launcher.start() if of_launcher else None].splitlines()[-_LATER_LINES:]
        errors = [line for line in lines if _ERROR.search(line) and not _WARNING.match(line)]
        found = errors[-1] if errors else of_launcher[2] if of_launcher else ""
    line = " ".join(found.split()).rstrip(":")
    return line if len(line) <= LONGEST_CAUSE else f"{line[: LONGEST_CAUSE - 1]}…"


_HINTS = (  # pairs of a pattern and the hint for output that matches the pattern
    (
        re.compile(r"tensorflow\.python\.distribute\.values\.PerReplica'>\) to a Tensor"),
        "Keras 3 does not train under this strategy: set TF_USE_LEGACY_KERAS=1 in the job's env and have tf_keras in "
        "its environment, or write the training loop with strategy.run",
    ),
)


def error_hint(last_words: str) -> str:
    """Return a hint for the error in the last output of a failed process, or an empty string."""
    return next((hint for pattern, hint in _HINTS if pattern.search(last_words)), "")
