"""Where the time of real jobs went: restarts, checkpoints, the start."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.advice.real.jobs import fit, lose, ran, submitted
from tests.advice.real.table import Verdicts
from tests.jobs.places import LocalPlace
from tony_provider.advice.rules.restart_costs import CheckpointInterval, FailingNode, RestartCost
from tony_provider.advice.rules.start_delay import SlowStart

QUICK = {"restart": {"budget": 10, "same_failure": 10, "backoff": "0.1s"}}


def fails(folder: Path, options: str) -> dict[str, Any]:
    """A training that fails here and there, each time once."""
    folder.mkdir()
    return fit(f"{options} --marks {folder}", job=QUICK)


def test_restart_cost_of_a_short_job(local: LocalPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    again = ran(local.submit(fails(tmp_path / "marks", "--steps 30 --pace 0.1 --fail-at 20")))
    advice = verdicts.told(RestartCost(least_seconds=1.0), "a failure, and no checkpoint to go on from", again)
    assert advice.evidence["failed"] == {"worker:0": 1}


@pytest.mark.long
def test_checkpoint_interval(local: LocalPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    rule = CheckpointInterval(least_seconds=5.0)
    failing = "--steps 260 --pace 0.1 --fail-at 95 150 190 230"
    rare = fails(tmp_path / "rare", f"{failing} --save-every 60")
    single = fails(tmp_path / "single", "--steps 170 --pace 0.1 --fail-at 95 130 160 --save-every 90")
    often = fails(tmp_path / "often", f"{failing} --save-every 15")
    never = fit("--steps 200 --pace 0.1 --save-every 60")
    none = fails(tmp_path / "none", "--steps 100 --pace 0.1 --fail-at 90")
    too_rare, one, enough, unharmed, lost = map(ran, submitted(local, rare, single, often, never, none))
    advice = verdicts.told(rule, "a checkpoint every 6 s, and four failures in less than a minute", too_rare)
    assert advice.text.startswith("Save checkpoints more often: ")
    advice = verdicts.told(rule, "one checkpoint after 9 s, and three failures", one)
    assert advice.text.startswith("Save checkpoints more often: ")
    advice = verdicts.told(rule, "no checkpoint, and a failure after 9 s", lost)
    assert advice.text.startswith(
        "Save checkpoints in TONY_CHECKPOINT_DIR: no checkpoint was saved, and 1 restart caused "
    )
    verdicts.silent(rule, "a checkpoint every 1.5 s, and four failures", enough)
    verdicts.silent(rule, "a checkpoint every 6 s, and nothing failed", unharmed)


@pytest.mark.long
def test_restart_cost(local: LocalPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    rule = RestartCost(least_seconds=2.0)
    dear = fails(tmp_path / "dear", "--steps 60 --pace 0.1 --prepare 2 --fail-at 20 40")
    cheap = fails(tmp_path / "cheap", "--steps 400 --pace 0.1 --save-every 10 --fail-at 105")
    often, once = map(ran, submitted(local, dear, cheap))
    verdicts.told(rule, "two failures, with 2 s of preparation each time", often)
    verdicts.silent(rule, "one failure just after a checkpoint", once)


@pytest.mark.long
def test_slow_start(local: LocalPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    rule = SlowStart(least_seconds=15.0)
    slow, quick = map(ran, submitted(local, fit("--steps 100 --pace 0.1 --prepare 20"), fit("--steps 300 --pace 0.1")))
    advice = verdicts.told(rule, "20 s until its data is prepared, 10 s of training", slow)
    assert "prepare the data earlier" in advice.text
    verdicts.silent(rule, "it begins at once", quick)


@pytest.mark.long
def test_slow_start_of_many_files(local: LocalPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    archive = tmp_path / "many.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for number in range(15_000):
            tar.addfile(tarfile.TarInfo(f"{number % 100}/{number}"))
    unpacks = ran(local.submit(fit("--steps 50 --pace 0.1", job={"archives": [f"{archive}::many"]})))
    advice = verdicts.told(SlowStart(least_seconds=3.0), "15,000 files in an archive, 5 s of training", unpacks)
    assert "send fewer files" in advice.text


@pytest.mark.long
def test_failing_node_where_there_is_but_one(local: LocalPlace, verdicts: Verdicts, tmp_path: Path) -> None:
    """Two nodes, of which one fails, are in ``test_cluster.py``."""
    end = tmp_path / "end"
    job = local.submit(fit(f"--steps 10 --until {end}", job=QUICK, instances=2))
    for _ in range(2):
        lose(job, "worker:0")
    end.touch()
    verdicts.silent(FailingNode(), "two containers lost, on the only node", ran(job))
