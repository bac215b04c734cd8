"""`python -m benchmarks [NAME …]`: run benchmarks one after the other, and tell all their ratios beside their aims.

Each is a process of its own, and prints a table of its own; its figures and a plot are left in test-output/bench. One
that fails does not stop the others, and is named at the end. The exit code says whether all of them ran: an aim that
is missed is told.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks import hadoop
from benchmarks.every import EVERY, Benchmark
from benchmarks.program import OUTPUT
from benchmarks.report import read
from benchmarks.summary import Outcome, summary
from tests.hadoop.daemons import ClusterError
from tests.hadoop.fixtures import ATTACH
from tests.hadoop.resolve import ResolveError

MOST = 1200.0  # seconds for one of them
_TO_END = 120.0  # seconds that an interrupted one gets to end what it has started


def main() -> int:
    known = {benchmark.name: benchmark for benchmark in EVERY}
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all except very long benchmarks")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where all is left (%(default)s)")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in known]:
        parser.error(f"{', '.join(unknown)}: not among {', '.join(known)}")
    names = arguments.names or [each.name for each in EVERY if arguments.list or not each.only_named]
    chosen = [benchmark for benchmark in EVERY if benchmark.name in names]
    if arguments.list:
        print("\n".join(f"{benchmark.name:12} {benchmark.about}" for benchmark in chosen))
        return 0
    output = arguments.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    outcomes = list(run_all(chosen, output))
    text = summary(outcomes)
    (output / "summary.txt").write_text(f"{text}\n")
    print(f"\n{text}\n\nFigures and plots are in {output}")
    return 0 if all(outcome.run for outcome in outcomes) else 1


def run_all(chosen: Sequence[Benchmark], output: Path) -> Iterator[Outcome]:
    """Those first that share a cluster: it takes memory and time of those that need none."""
    yield from _on_clusters([benchmark for benchmark in chosen if benchmark.on_cluster], output)
    for benchmark in chosen:
        if not benchmark.on_cluster:
            yield run_one(benchmark, output)


def _on_clusters(waiting: list[Benchmark], output: Path) -> Iterator[Outcome]:
    """On one cluster, as long as they succeed: one that failed may have left jobs there that go on."""
    while waiting:
        try:
            with hadoop.cluster("shared") as cluster:
                good = True
                while waiting and good:
                    outcome = run_one(waiting.pop(0), output, {ATTACH: str(cluster.root)})
                    good = outcome.run is not None
                    yield outcome
        except (ClusterError, ResolveError) as error:
            print(error, file=sys.stderr)  # where none is waiting any more, too: it has not ended as it should
            yield from (Outcome(benchmark.name, 0.0, None, f"no cluster: {error}") for benchmark in waiting)
            return


def run_one(
    benchmark: Benchmark, output: Path, environment: Mapping[str, str] | None = None, most: float = MOST
) -> Outcome:
    """In a process of its own: what one imports, sets or leaves in memory is nothing to the next."""
    print(f"\n-- {benchmark.name}: {benchmark.about}", flush=True)
    left = output / f"{benchmark.name}.json"
    left.unlink(missing_ok=True)  # of a former run
    began = time.monotonic()
    command = [sys.executable, "-m", benchmark.module, "--output", str(output)]
    problem = _problem(command, {**os.environ, **(environment or {})}, most)
    seconds = time.monotonic() - began
    if problem is None and not left.exists():
        problem = "has left no report"
    return Outcome(benchmark.name, seconds, None if problem else read(left), problem or "")


def _problem(command: Sequence[str], environment: Mapping[str, str], most: float) -> str | None:
    """Why it failed. Nothing of it is left running: what it leads is a session of its own."""
    process = subprocess.Popen(command, cwd=hadoop.REPOSITORY, env=environment, start_new_session=True)
    try:
        code = process.wait(most)
    except subprocess.TimeoutExpired:
        return f"was not done after {most:g} s"
    else:
        return f"exit code {code}" if code else None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """As by Control-C, so that it ends what it has started; then whatever is left of its session."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TO_END)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
