"""Trainings that read tables of Hive and Iceberg, by a real Hive metastore beside a Kerberos cluster."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hive_metastore.ttypes import Database, FieldSchema, Partition, SerDeInfo, StorageDescriptor, Table

from tests.environments import with_pyarrow
from tests.gateways.metastore import Metastore, java
from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.settings import REALM
from tests.hooks.test_secure_yarn import become
from tests.iceberg import IcebergTable
from tests.jobs.job import Job
from tests.jobs.places import USER, YarnPlace
from tests.waiting import until
from tony_provider.cluster.errors import SourceMissing
from tony_provider.cluster.records.staleness import ChangeKind, ModelState
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.cluster.tables import HiveMetastore
from tony_provider.cluster.yarn.credentials import own_tickets
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage import Storage
from tony_provider.runtime.storage.errors import StorageAuthError, StorageError, StoragePermissionDenied
from tony_provider.runtime.storage.webhdfs.transport import spnego_error

pytestmark = pytest.mark.long

SAMPLE = Path(__file__).parents[1] / "runtime" / "inputs" / "samples" / "pyarrow.parquet"
ROWS = 40  # of the sample, numbered from 0
PROGRAM = """
import json
import tony_sdk

numbers, partitions, snapshots = [], set(), set()
for shard in tony_sdk.inputs("train"):
    partitions.add(json.dumps(shard.partition))
    snapshots.add(shard.snapshot)
    numbers += [row["number"] for row in shard.records()]
sets = {"partitions": sorted(partitions), "snapshots": sorted(map(str, snapshots))}
print(json.dumps({"rows": len(numbers), "sum": sum(numbers), **sets}))
"""

WAITING = """
import os, time

def password():
    with open(os.environ["HADOOP_TOKEN_FILE_LOCATION"], "rb") as file:
        return file.read().partition(b"HIVE_DELEGATION_TOKEN")[0][-21:]

first = password()
print("has a token", flush=True)
while password() == first:
    time.sleep(0.2)
print("has another token", flush=True)
"""


@dataclass
class Warehouse:
    """A database of the user's own, in a metastore; its tables are below a directory of the user's own."""

    place: YarnPlace
    metastore: Metastore
    client: HiveMetastore
    database: str

    @property
    def storage(self) -> Storage:
        return self.place.hook().storage()

    def uri(self, path: str) -> str:
        return f"{self.place.cluster.fs_default}/user/{USER}/{self.database}/{path}"

    def sample(self, path: str) -> tuple[str, int]:
        """Write a file of 40 rows; its URI and size."""
        self.storage.write(self.uri(path), SAMPLE.read_bytes())
        return self.uri(path), SAMPLE.stat().st_size

    def create(self, name: str, columns: tuple[str, ...] = (), **parameters: str) -> None:
        """A table of this database, by the name that its directory has."""
        where = self._described(name)
        with self.client._client() as client:
            keys = [FieldSchema(each, "string", None) for each in columns]
            parameters = {"EXTERNAL": "TRUE", **parameters}
            client.create_table(
                Table(name, self.database, USER, 0, 0, 0, where, keys, parameters, None, None, "EXTERNAL_TABLE")
            )

    def add_partition(self, table: str, day: str) -> None:
        self.sample(f"{table}/ds={day}/part-0.parquet")
        self.storage.write(self.uri(f"{table}/ds={day}/_SUCCESS"), b"")
        with self.client._client() as client:
            where = self._described(f"{table}/ds={day}")
            client.add_partition(Partition([day], self.database, table, 0, 0, where, {}))

    def point_to(self, name: str, location: str) -> None:
        """What each commit to a table of Iceberg does in a metastore."""
        with self.client._client() as client:
            table = client.get_table(self.database, name)
            table.parameters["metadata_location"] = location
            client.alter_table(self.database, name, table)

    def _described(self, path: str) -> StorageDescriptor:
        columns = [FieldSchema("number", "bigint", None)]
        serde = SerDeInfo("parquet", "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe", {})
        return StorageDescriptor(columns, self.uri(path), None, None, False, -1, serde, [], [], {})

    def job(self, source: dict[str, Any], command: str = "", **keys: Any) -> dict[str, Any]:
        worker = {"memory": "256MiB", "command": f"{command}exec python -c {shlex.quote(PROGRAM)}"}
        inputs = {"train": {"fetch": True, **source}}
        return {"python_env": str(with_pyarrow()), "tasks": {"worker": worker}, "inputs": inputs, **keys}


@pytest.fixture
def warehouse(secure_hadoop: HadoopCluster, hive: Metastore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    become(monkeypatch, secure_hadoop, USER)
    place = YarnPlace(cluster=secure_hadoop, extra={"hive_metastore": hive.address})
    client = HiveMetastore([hive.address], USER, tickets=own_tickets(spnego_error))
    found = Warehouse(place, hive, client, f"web{uuid.uuid4().hex[:8]}")
    with client._client() as thrift:
        thrift.create_database(Database(found.database, None, found.uri(""), {}))
    yield found
    place.close()


def test_a_training_reads_partitions_of_a_hive_table_and_has_a_token(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.create("clicks", ("ds",))
    for day in ("2026-11-01", "2026-11-02", "2026-11-03"):
        warehouse.add_partition("clicks", day)
    shutil.copy(Path(__file__).with_name("Tables.java"), tmp_path)
    client = java(warehouse.metastore.jars, warehouse.place.cluster.layout.krb5_conf)
    client[-1] = f"$HADOOP_CONF_DIR:{client[-1]}"
    arguments = ["Tables.java", warehouse.metastore.address, f"hive/localhost@{REALM}", warehouse.database]
    ask = " ".join([*client[:-1], f'"{client[-1]}"', *arguments])
    spec = warehouse.job(
        {"table": f"{warehouse.database}.clicks", "partitions": "ds >= '2026-11-02'", "format": "parquet"},
        f"{ask} && ",
        hadoop={"hive": True},
        files=["Tables.java"],
    )
    job = warehouse.place.submit(spec, search_path=[tmp_path])
    job.succeeded()
    days = [json.dumps({"ds": day}) for day in ("2026-11-02", "2026-11-03")]
    numbers = 2 * sum(range(ROWS))
    assert job.said("worker:0") == {"rows": 2 * ROWS, "sum": numbers, "partitions": days, "snapshots": ["None"]}
    log = job.log("worker:0")
    assert "tables [clicks]" in log
    assert "HIVE_DELEGATION_TOKEN" in log
    listed = [json.loads(line) for line in job.read("inputs/train.jsonl").splitlines()]
    assert [each["partition"] for each in listed] == [{"ds": "2026-11-02"}, {"ds": "2026-11-03"}]
    assert f"ugi={USER}" in (warehouse.metastore.root / "metastore.log").read_text()
    assert job.compared() == (ModelState.CURRENT, {})
    warehouse.storage.write(warehouse.uri("clicks/ds=2026-11-03/part-0.parquet"), b"corrected", overwrite=True)
    for day in ("2026-10-31", "2026-11-04"):
        warehouse.add_partition("clicks", day)
    changed = {"ds=2026-11-03/part-0.parquet": ChangeKind.CHANGED, "ds=2026-11-04/part-0.parquet": ChangeKind.ADDED}
    assert job.compared() == (
        ModelState.STALE,
        {warehouse.uri(f"clicks/{path}"): kind for path, kind in changed.items()},
    )


def test_a_retry_reads_the_snapshot_of_the_first_try(warehouse: Warehouse) -> None:
    table = IcebergTable(warehouse.storage, warehouse.uri("events"))
    files = [warehouse.sample(f"events/data/{number}.parquet") for number in range(3)]
    first = table.append(files[:2])
    warehouse.create("events", table_type="ICEBERG", metadata_location=table.metadata_location)
    source = {"table": f"{warehouse.database}.events", "format": "iceberg", "split_size": "1MiB"}
    hook = warehouse.place.hook()
    failed = _submit(warehouse, hook, warehouse.job(source, 'test "$TONY_TEST_FAIL" != yes || exit 3; '), "yes")
    failed.failed()
    second = table.append(files[2:])
    warehouse.point_to("events", warehouse.uri("events/metadata/lost.json"))  # the retry does not look
    retried = _submit(warehouse, hook, warehouse.job(source, 'test "$TONY_TEST_FAIL" != yes || exit 3; '), "no")
    retried.succeeded()
    said = retried.said("worker:0")
    assert (said["rows"], said["snapshots"]) == (2 * ROWS, [str(first)])
    listed = [json.loads(line) for line in retried.read("inputs/train.jsonl").splitlines()]
    assert [(each["snapshot"], each["row_groups"]) for each in listed] == [(first, [0, 4])] * 2
    warehouse.point_to("events", table.metadata_location)
    another = _submit(warehouse, hook, warehouse.job(source, 'test "$TONY_TEST_FAIL" != yes || exit 3; '), "no")
    another.succeeded()
    assert another.said("worker:0")["snapshots"] == [str(second)]
    assert another.compared() == (ModelState.CURRENT, {})
    added = warehouse.sample("events/data/3.parquet")
    table.append([added])
    warehouse.point_to("events", table.metadata_location)
    assert another.compared() == (ModelState.STALE, {added[0]: ChangeKind.ADDED})


def _submit(warehouse: Warehouse, hook: TonyHook, spec: dict[str, Any], fails: str) -> Job:
    identity = hook.identity(dag_id="tables", run_id=warehouse.database, task_id="train")
    job = parse_job({"framework": "standalone", "am": {"memory": "256MiB"}, **spec})
    request = SubmissionRequest(job, identity, environment={"TONY_TEST_FAIL": fails})
    return Job(hook, identity, hook.submit(request).application_id, warehouse.place.log_folders)


def test_a_token_for_another_user(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, secure_hadoop: HadoopCluster
) -> None:
    """Who may act for others gets their tokens, and nobody else."""
    become(monkeypatch, secure_hadoop, "airflow")
    bobs = HiveMetastore(warehouse.client.addresses, "bob", tickets=own_tickets(spnego_error))
    token = bobs.get_delegation_token()
    assert bobs.renew_delegation_token(token) > 0
    bobs.cancel_delegation_token(token)
    with pytest.raises(StorageError, match="token does not exist"):
        bobs.renew_delegation_token(token)
    become(monkeypatch, secure_hadoop, USER)
    with pytest.raises(StorageError, match="does not let this user impersonate other users"):
        bobs.get_delegation_token()


def test_a_newer_token_reaches_a_running_process(warehouse: Warehouse) -> None:
    worker = {"memory": "128MiB", "command": f"exec python3 -c {shlex.quote(WAITING)}"}
    job = warehouse.place.submit({"tasks": {"worker": worker}, "hadoop": {"hive": True}})
    job.until(JobState.RUNNING)
    job.until_said("worker:0", "has a token")
    life = job.handle.refresh_store_token()
    assert life is not None
    assert life.until_ms - life.issued_ms < 25 * 3600 * 1000  # the first of several tokens to end is that of Hive
    job.succeeded()
    assert "has another token" in job.log("worker:0")


def test_tables_that_cannot_be_read(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, secure_hadoop: HadoopCluster
) -> None:
    table = IcebergTable(warehouse.storage, warehouse.uri("events"))
    table.append([warehouse.sample("events/data/0.parquet")])
    warehouse.create("events", table_type="ICEBERG", metadata_location=table.metadata_location)
    warehouse.create("clicks", ("ds",))
    warehouse.add_partition("clicks", "2026-11-01")
    with pytest.raises(SourceMissing, match=rf"inputs\.train\.table: .* has no table {warehouse.database}\.nothing; "):
        _check(warehouse, {"table": f"{warehouse.database}.nothing"})
    with pytest.raises(StorageError, match=r"(?i)cannot query the Hive metastore .*parsing partition filter"):
        _check(warehouse, {"table": f"{warehouse.database}.clicks", "partitions": "ds ="})
    become(monkeypatch, secure_hadoop, "bob")
    for source in (
        {"table": f"{warehouse.database}.events", "format": "iceberg"},
        {"table": f"{warehouse.database}.clicks"},
    ):
        with pytest.raises(StoragePermissionDenied, match=rf"bob.*/user/{USER}"):
            _check(warehouse, source)


def _check(warehouse: Warehouse, source: dict[str, Any]) -> None:
    worker = {"memory": "128MiB", "command": "true"}
    warehouse.place.submit({"tasks": {"worker": worker}, "inputs": {"train": source}})


def test_no_ticket_and_an_expired_one(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, secure_hadoop: HadoopCluster, tmp_path: Path
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/ticket")
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    with pytest.raises(
        StorageAuthError, match=r"cannot query the Hive metastore .*there is no Kerberos ticket .*kinit"
    ):
        warehouse.client.check()
    keytab = str(secure_hadoop.layout.keytab(USER))
    subprocess.run(["kinit", "-l", "1s", "-k", "-t", keytab, USER], check=True, capture_output=True, timeout=60)

    def has_expired() -> bool:
        try:
            warehouse.client.check()
        except StorageAuthError as error:
            return "the Kerberos ticket has expired" in str(error)
        return False

    until(has_expired, lambda: "the ticket to expire")


def test_the_doctor_asks_the_metastore(warehouse: Warehouse) -> None:
    found = {each.what: each for each in warehouse.place.hook().diagnose().findings if "metastore" in each.what}
    assert {name: str(each.outcome) for name, each in found.items()} == {
        f"Hive metastore {warehouse.metastore.address}": "ok"
    }
    place = YarnPlace(cluster=warehouse.place.cluster, extra={"hive_metastore": "thrift://localhost:1"})
    [finding] = [each for each in place.hook().diagnose().findings if "metastore" in each.what]
    assert (str(finding.outcome), "Connection refused" in finding.detail) == ("warning", True)
    place.close()
