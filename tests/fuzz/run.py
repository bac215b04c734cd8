"""The watchdog: feeds parsers in processes with limits, and goes on after an input that ends one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from tests.fuzz.parsers import parser_of
from tests.fuzz.worker import PLACE, made

SECONDS = 5.0  # of processor time for one input
_ROOT = Path(__file__).parents[2]
OUTPUT = _ROOT / "test-output" / "fuzz"
_POLL = 0.2  # seconds
_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_ENDS = 5  # of its process, by one parser: then that is given up


@attrs.frozen
class Finding:
    """What an input did that its parser has not declared."""

    parser: str
    number: int
    what: str
    where: str = ""
    trace: str = ""


@attrs.define
class Outcome:
    """What feeding some parsers came to."""

    seed: int
    inputs: int = 0
    peak: int = 0  # bytes of memory, of the process that took most
    findings: list[Finding] = attrs.field(factory=list)

    def note(self, finding: Finding) -> None:
        """Keep a finding, and its input in ``test-output/fuzz``, unless there is one like it."""
        kind = finding.what.partition(":")[0]
        for each in self.findings:
            if each.parser == finding.parser and each.where == finding.where and each.what.startswith(kind):
                return
        self.findings.append(finding)
        OUTPUT.mkdir(parents=True, exist_ok=True)
        kept = OUTPUT / f"{finding.parser}-{self.seed}-{finding.number}"
        data = made(parser_of(finding.parser), self.seed, finding.number)
        kept.with_name(f"{kept.name}.bin").write_bytes(data)
        told = f"{finding.what}\n{finding.where}\n{finding.trace}"
        kept.with_name(f"{kept.name}.txt").write_text(told, encoding="utf-8")


def fuzz(names: Sequence[str], inputs: int, seed: int, *, at_once: int = 2, seconds: float = SECONDS) -> list[Outcome]:
    """Feed each parser with so many inputs, in so many processes, with so much processor time for an input."""
    parts = [part for part in (list(names[at::at_once]) for at in range(at_once)) if part]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda part: _feed(part, inputs, seed, seconds), parts))


def _feed(names: list[str], inputs: int, seed: int, seconds: float) -> Outcome:
    outcome = Outcome(seed)
    ended_by = dict.fromkeys(names, 0)  # inputs, of each parser, that have ended its process
    first = 0
    while names:
        why, index, number = _process(names, inputs, first, seconds, outcome)
        outcome.inputs += max(0, index * inputs + number - first)
        if index == len(names):
            return outcome
        if (index, number) < (0, first):
            raise AssertionError(f"the fuzzer's own process {why} before it began")
        outcome.inputs += 1
        outcome.note(Finding(names[index], number, why))
        ended_by[names[index]] += 1
        is_given_up = number + 1 == inputs or ended_by[names[index]] == _MOST_ENDS
        names, first = names[index + is_given_up :], 0 if is_given_up else number + 1
    return outcome


def _process(names: list[str], inputs: int, first: int, seconds: float, outcome: Outcome) -> tuple[str, int, int]:
    """Why the process has ended, or was ended, and how far it had come."""
    with tempfile.NamedTemporaryFile() as place, tempfile.TemporaryFile("w+") as answers:
        place.write(PLACE.pack(-1, 0))
        place.flush()
        asked = [str(outcome.seed), str(inputs), place.name, str(first), *names]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", *asked], stdout=answers, stderr=subprocess.DEVNULL, cwd=_ROOT
        )
        try:
            why = _watch(process, Path(place.name), seconds, outcome)
        finally:
            process.kill()
            process.wait()
        answers.seek(0)
        for line in answers:
            outcome.note(Finding(**json.loads(line)))
        index, number = _reached(Path(place.name))
        return why or f"ended its process (status {process.returncode})", index, number


def _watch(process: subprocess.Popen[bytes], place: Path, seconds: float, outcome: Outcome) -> str:
    """Why the process was given up; empty when it has ended."""
    at, spent_then = (-1, 0), 0.0
    while process.poll() is None:
        time.sleep(_POLL)
        spent, peak = _use(process.pid)
        outcome.peak = max(outcome.peak, peak)
        if (now := _reached(place)) != at:
            at, spent_then = now, spent
        elif now[0] >= 0 and spent - spent_then > seconds:
            return f"took more than {seconds:g} s of processor time"
    return ""


def _reached(place: Path) -> tuple[int, int]:
    index, number = PLACE.unpack(place.read_bytes())
    return index, number


def _use(pid: int) -> tuple[float, int]:
    """Processor time in seconds, and the most memory in bytes, of a process that may have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, 0
    peak = next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
    return (int(fields[11]) + int(fields[12])) / _TICKS, peak
