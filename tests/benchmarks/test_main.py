"""Running benchmarks one after the other; those here are none, and need no cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import attrs
import pytest

from benchmarks.__main__ import run_all, run_one
from benchmarks.every import EVERY, Benchmark
from benchmarks.hadoop import REPOSITORY
from benchmarks.summary import Outcome, summary
from tests.benchmarks.reports import run, small
from tests.hadoop.daemons import ClusterError
from tests.jobs.processes import every_process
from tests.waiting import until


def program(name: str) -> Benchmark:
    return Benchmark(name, "", package="tests.benchmarks.programs")


def test_one_that_fails_does_not_stop_the_next(tmp_path: Path) -> None:
    bad, silent, good = run_all([program("bad"), program("silent"), program("good")], tmp_path)
    assert (bad.run, bad.problem) == (None, "exit code 1")
    assert (silent.run, silent.problem) == (None, "has left no report")
    assert good.run is not None
    assert (good.run.report.name, good.problem) == ("good", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.json", "good.svg"]


@attrs.frozen
class StandInCluster:
    """In place of one that takes half a minute to start."""

    root: Path


def test_those_that_need_a_cluster_share_one_until_one_fails_on_stand_ins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters: list[str] = []

    @contextmanager
    def cluster(name: str) -> Iterator[StandInCluster]:
        clusters.append(f"{name}-{len(clusters)}")
        yield StandInCluster(tmp_path / clusters[-1])
        clusters.append("stopped")

    monkeypatch.setattr("benchmarks.hadoop.cluster", cluster)
    on_cluster = [attrs.evolve(program(name), on_cluster=True) for name in ("attached", "bad", "attached")]
    titles = [each.run and each.run.report.title for each in run_all([program("good"), *on_cluster], tmp_path / "left")]
    assert titles == [str(tmp_path / "shared-0"), None, str(tmp_path / "shared-2"), "Small jobs"]
    assert clusters == ["shared-0", "stopped", "shared-2", "stopped"]


def test_without_a_cluster_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def cluster(name: str) -> Iterator[StandInCluster]:
        raise ClusterError("no Java is here")
        yield StandInCluster(tmp_path)

    monkeypatch.setattr("benchmarks.hadoop.cluster", cluster)
    without, good = run_all([attrs.evolve(program("attached"), on_cluster=True), program("good")], tmp_path)
    assert (without.run, without.problem) == (None, "no cluster: no Java is here")
    assert good.run is not None


def test_the_report_of_a_former_run_is_not_taken_for_one_of_this(tmp_path: Path) -> None:
    run(small("bad")).write(tmp_path)
    assert run_one(program("bad"), tmp_path).run is None
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_one_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.__main__._TO_END", 20.0)
    outcome = run_one(program("endless"), tmp_path, most=3.0)
    assert outcome.problem == "was not done after 3 s"
    child = int((tmp_path / "child").read_text())
    until(lambda: child not in every_process(), "the child to be gone")


def test_the_end_says_all_ratios_and_what_failed() -> None:
    outcomes = [
        Outcome("launch", 60.0, run(small())),
        Outcome("good", 60.0, run(small("good", first=2.0))),
        Outcome("scale", 60.0, None, "exit code 1"),
    ]
    lines = summary(outcomes).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["launch", "launch", "good", "good"]
    assert lines[-3:] == [
        "2 of 4 aims hold. 2 of 3 ran, in 3 minutes",
        "launch 60 s, good 60 s",
        "FAILED: scale: exit code 1",
    ]


@pytest.mark.parametrize(("arguments", "code"), [(["--list"], 0), (["--list", "scale"], 0), (["skale"], 2)])
def test_names(arguments: list[str], code: int) -> None:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    if code == 0:
        chosen = arguments[1:] or [benchmark.name for benchmark in EVERY]
        assert [line.split()[0] for line in done.stdout.splitlines()] == chosen
    else:
        assert "skale: not among launch, " in done.stderr


@pytest.mark.parametrize("benchmark", EVERY, ids=lambda benchmark: benchmark.name)
def test_each_is_a_program(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [benchmark.module, "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(benchmark.module).main()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "--rounds" in said
    assert "--output" in said
