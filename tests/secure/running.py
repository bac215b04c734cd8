"""Running rows: clusters side by side, and those of one cluster one after the other."""

from __future__ import annotations

import logging
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.settings import Settings
from tests.row_tables import NOT_TO_ITS_END, Outcome, run_row
from tests.secure.field import CLUSTERS, Field
from tests.secure.row import Row
from tests.secure.standing import Standing
from tests.secure.table import TABLE
from tony_provider.runtime.common.files import locked

# Clusters at a time, in the order of CLUSTERS: most of a row is waiting, but what lives for seconds bears no crowd.
_AT_ONCE = 2
_START_SECONDS = 600.0  # that another may take to start: side by side none would come up in time


def run_one(row: Row, field: Field) -> Outcome:
    """Raises ClusterError."""
    happened, seconds = run_row(field, lambda: row.run(field))
    texts = (row.name, row.attempt, row.by, happened or NOT_TO_ITS_END, field.cost)
    return Outcome(row, texts, field.problems, seconds)


def run_all(root: Path, folder: Path, rows: list[Row], *, version: str, keep: bool) -> list[Outcome]:
    """In the rows' order; each is told once it is over. Raises ClusterError.

    Each cluster has a process, since tickets are a process's own.
    """
    asked = {name: [row for row in rows if row.cluster == name] for name in CLUSTERS}
    with ProcessPoolExecutor(_AT_ONCE, mp_context=get_context("spawn"), initializer=_begin) as pool:
        running = [
            pool.submit(
                partial(run_on, keep=keep), root / name, replace(CLUSTERS[name], version=version), folder, chosen
            )
            for name, chosen in asked.items()
            if chosen
        ]
        outcomes = {outcome.row.name: outcome for each in running for outcome in each.result()}
    return [outcomes[row.name] for row in rows]


def _begin() -> None:
    logging.getLogger("requests_gssapi").setLevel(logging.CRITICAL)  # it calls each 404 an error


def run_on(root: Path, settings: Settings, folder: Path, rows: list[Row], *, keep: bool) -> list[Outcome]:
    """The rows of one cluster; each is told at once. Raises ClusterError."""
    outcomes: list[Outcome] = []
    hadoop = HadoopCluster(root, settings)
    standing = Standing()
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with locked(root.parent / "starting.lock", _START_SECONDS):
            hadoop.start()
        for row in rows:
            outcomes.append(run_one(row, Field(hadoop, folder / row.name, standing)))
            print("\n".join(TABLE.lines_of(outcomes[-1])), flush=True)
        if standing.running is not None:
            problems = standing.running.finish()
            outcomes[-1].problems.extend(problems)
            print(f"The job that these rows attacked together: {problems or 'SUCCEEDED, and left nothing'}", flush=True)
    finally:
        standing.close()
        if not keep:
            hadoop.stop()
    return outcomes
