"""`python -m benchmarks.stale`: what `airflow tony stale` takes for 10,000 dates with 100 files each, on a real HDFS.

The directory of a date is a snapshot of one directory: the NameNode lists 100 files for each date, and holds only 100.
"""

from __future__ import annotations

import getpass
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import tests.airflow_home  # noqa: F401 - names Airflow's home before anything imports Airflow
from benchmarks import hadoop, program
from benchmarks.airflow_side.environment import environment
from benchmarks.airflow_side.process_cost import Cost, figures, run
from benchmarks.report import OURS, Aim, Figure, Ratio, Report, by_name
from tests.hadoop.cluster import HadoopCluster
from tests.jobs.places import YarnPlace
from tony_provider.cluster.training.identity import Identity, identity_of
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.inputs.finding import find_shards
from tony_provider.runtime.inputs.lineage import FileSet, InputLineage, Lineage
from tony_provider.runtime.jobspec.model import InputSpec
from tony_provider.runtime.storage.stores import JobStores

ROUNDS = 3
DATES, FILES = 10_000, 100
_THREADS = 16
_LISTING = "listing alone"


def measure(rounds: int = ROUNDS) -> Report:
    with (
        tempfile.TemporaryDirectory(prefix="tony-bench-") as name,
        hadoop.cluster("stale") as cluster,
        closing(YarnPlace(cluster=cluster)) as place,
    ):
        hook = place.hook()
        program.progress(f"writing the records of {DATES:,} dates")
        directories = list(_dates(cluster, hook))
        _keep_records(hook, directories)
        env = environment(Path(name), AIRFLOW_CONN_TONY_DEFAULT=json.dumps(place.connection))
        command = [sys.executable, "-m", "airflow", "tony", "stale"]
        costs: list[Cost] = []
        listing: list[float] = []
        for number in range(rounds):
            program.progress(f"round {number + 1}")
            costs.append(run(command, env))
            listing.append(_list_all(hook, directories))
    found = [*figures("airflow tony stale", OURS, costs), Figure("airflow tony stale: wall", _LISTING, "s", listing)]
    return Report("stale", f"{DATES:,} dates with {FILES} files each, none of which has changed", found, ratios(found))


def _dates(cluster: HadoopCluster, hook: TonyHook) -> Iterator[str]:
    """Make the directory of each date, and yield its URI."""
    path = "/user/alice/rows"
    for number in range(FILES):
        hook.storage().write(f"{cluster.fs_default}{path}/part-{number:05}.parquet", b"")
    superuser, alice = cluster.client(getpass.getuser()), cluster.client("alice")
    address = f"{cluster.webhdfs[0]}/webhdfs/v1{path}"
    superuser.request("PUT", address, query={"op": "ALLOWSNAPSHOT"})
    names = [f"{number:05}" for number in range(DATES)]

    def snapshot(name: str) -> None:
        alice.request("PUT", address, query={"op": "CREATESNAPSHOT", "snapshotname": name})

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(snapshot, names))
    for name in names:
        yield f"{cluster.fs_default}{path}/.snapshot/{name}"


def _keep_records(hook: TonyHook, directories: Sequence[str]) -> None:
    """Write the record of each date. Each training started from the model of the date before."""
    stores = JobStores(hook.storage(), hook.layout.root)
    models = [f"{hook.layout.application_dir(_identity(day), _application(day))}/model" for day in range(DATES)]

    def keep(day: int) -> None:
        identity, spec = _identity(day), InputSpec([directories[day]])
        lineage = Lineage(
            application_id=_application(day),
            training=identity.name,
            labels={"dag_id": "rows", "run_id": f"{day:05}", "task_id": "train"},
            finished_ms=day,
            chain_dir=hook.layout.chain_dir(identity, 1),
            model_dir=models[day],
            warm_start=models[day - 1] if day else None,
            inputs={"rows": InputLineage(spec, FileSet.of(find_shards("rows", spec, stores)))},
        )
        hook.storage().write_record(hook.layout.lineage_file(identity), dump_json(lineage))

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(keep, range(DATES)))


def _identity(day: int) -> Identity:
    return identity_of(namespace="", dag_id="rows", run_id=f"{day:05}", task_id="train")


def _application(day: int) -> str:
    return f"application_1_{day:05}"


def _list_all(hook: TonyHook, directories: Sequence[str]) -> float:
    """Return the seconds to list all directories, with as many threads as the command has."""
    began = time.monotonic()
    with ThreadPoolExecutor(_THREADS) as pool:
        listed = sum(map(len, pool.map(hook.storage().list, directories)))
    assert listed == DATES * FILES
    return time.monotonic() - began


def ratios(found: Sequence[Figure]) -> list[Ratio]:
    by = by_name(found)
    wall, memory = by["airflow tony stale: wall", OURS], by["airflow tony stale: memory", OURS]
    return [
        Ratio.between(wall, by["airflow tony stale: wall", _LISTING]),
        Ratio.alone(wall, Aim(30.0)),
        Ratio.alone(memory, Aim(500.0)),
    ]


def main() -> int:
    arguments = program.options(__doc__).parse_args()
    return program.tell(measure(arguments.rounds or ROUNDS), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())
