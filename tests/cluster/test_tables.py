"""Tables of Hive and Iceberg as inputs. A stand-in answers as the metastore; the files of Iceberg are real."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.manifest import DataFileContent, FileFormat

from tests.iceberg import IcebergTable
from tony_provider.cluster.errors import SourceMissing
from tony_provider.cluster.tables import HiveMetastore, metastore_problem, table_lists
from tony_provider.runtime.hadoop.gss import Tickets
from tony_provider.runtime.inputs.finding import find_table_shards
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.jobspec.model import InputFormat, InputSpec, Memory
from tony_provider.runtime.storage.errors import StorageAuthError, StorageUnreachable
from tony_provider.runtime.storage.local import LocalStorage
from tony_provider.runtime.storage.stores import JobStores

SAMPLE = Path(__file__).parents[1] / "runtime" / "inputs" / "samples" / "pyarrow.parquet"


class StandIn:
    """One table in Hive's form, and its partitions by the filter that finds them."""

    def __init__(
        self, columns: list[str], kind: str = "EXTERNAL_TABLE", input_format: str = "", **parameters: str
    ) -> None:
        keys = [SimpleNamespace(name=each) for each in columns]
        self._table = SimpleNamespace(
            parameters=parameters,
            partitionKeys=keys,
            tableType=kind,
            sd=SimpleNamespace(location="file:///clicks", inputFormat=input_format),
        )
        self.found: dict[str, list[list[str]]] = {}

    def table(self, name: str) -> Any:
        return self._table

    def partitions(self, name: str, wanted: str) -> list[Any]:
        return [
            SimpleNamespace(values=values, sd=SimpleNamespace(location="file:///clicks/" + "/".join(values)))
            for values in self.found.get(wanted, [])
        ]


@pytest.fixture
def stores(tmp_path: Path) -> JobStores:
    return JobStores(LocalStorage(), f"file://{tmp_path}")


def listed(metastore: object, store: str = "file:///", **spec: Any) -> list[InputShard]:
    inputs = {"train": InputSpec(table="web.clicks", **spec)}
    found = table_lists(inputs, cast(HiveMetastore, metastore), LocalStorage(), store)
    return found["train"]


def test_partitions_of_a_hive_table(stores: JobStores) -> None:
    metastore = StandIn(["ds", "country"])
    metastore.found = {"": [["2", "de"], ["1", "fr"]], "ds = '1'": [["1", "fr"]]}
    first = InputShard("file:///clicks/1/fr", 0, 0, partition={"ds": "1", "country": "fr"})
    second = InputShard("file:///clicks/2/de", 0, 0, partition={"ds": "2", "country": "de"})
    assert listed(metastore) == [first, second]
    assert listed(metastore, partitions="ds = '1'") == [first]
    assert listed(StandIn([])) == [InputShard("file:///clicks", 0, 0)]
    with pytest.raises(
        SourceMissing, match=r"inputs\.train\.table: no partition of web\.clicks matches \"ds = '3'\"; "
    ):
        listed(metastore, partitions="ds = '3'")
    with pytest.raises(SourceMissing, match=r"inputs\.train\.table: web\.clicks has no partitions; "):
        listed(StandIn([]), partitions="ds = '1'")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (StandIn([], table_type="ICEBERG"), "is a table of Iceberg: also set `format: iceberg`"),
        (StandIn([], transactional="true"), "is a view or transactional"),
        (StandIn([], kind="VIRTUAL_VIEW"), "is a view or transactional"),
        (StandIn([], **{"spark.sql.sources.provider": "delta"}), "is a table of delta, so its directories may contain"),
        (StandIn([], storage_handler="org.apache.hadoop.hive.hbase.HBaseStorageHandler"), "is a table of org"),
        (StandIn([], input_format="org.apache.hudi.hadoop.HoodieParquetInputFormat"), "is a table of org.apache.hudi"),
    ],
)
def test_tables_whose_files_are_not_their_rows(stores: JobStores, table: StandIn, said: str) -> None:
    with pytest.raises(SourceMissing, match=rf"inputs\.train\.table: web\.clicks {said}"):
        listed(table)


def test_tables_on_the_disk_of_airflow(tmp_path: Path) -> None:
    """Another user may have chosen the location of a table."""
    with pytest.raises(SourceMissing, match="file:///clicks is not on the store of the staging directory"):
        listed(StandIn([]), "hdfs://nn/user/alice")
    table = IcebergTable(LocalStorage(), f"file://{tmp_path}")
    metastore = StandIn([], metadata_location=table.metadata_location)
    with pytest.raises(SourceMissing, match=f"{table.metadata_location} is not on the store"):
        listed(metastore, "hdfs://nn/user/alice", format=InputFormat.ICEBERG)


def test_files_of_partitions(stores: JobStores, tmp_path: Path) -> None:
    for name in ("ds=1/a", "ds=1/_SUCCESS", "ds=1/.hidden", "ds=2/b"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"12345")
    partitions = [InputShard(f"file://{tmp_path}/ds={day}", 0, 0, partition={"ds": day}) for day in "123"]
    spec = InputSpec(table="web.clicks", format=InputFormat.LINES, split_size=Memory(1))
    found = list(find_table_shards("train", spec, partitions, stores))
    assert [(each.uri, each.size, each.partition) for each in found] == [
        (f"file://{tmp_path}/ds=1/a", 5, {"ds": "1"}),
        (f"file://{tmp_path}/ds=2/b", 5, {"ds": "2"}),
    ]
    assert [InputShard.of_line(each.line()) for each in found] == found


def test_snapshots_of_an_iceberg_table(stores: JobStores, tmp_path: Path) -> None:
    table = IcebergTable(LocalStorage(), f"file://{tmp_path}")
    empty = StandIn([], metadata_location=table.metadata_location)
    with pytest.raises(SourceMissing, match=r"web\.clicks has no snapshot; "):
        listed(empty, format=InputFormat.ICEBERG)
    one, two = (f"file://{tmp_path}/data/{name}" for name in ("1.parquet", "2.orc"))
    first = table.append([(one, 10)])
    second = table.append([(two, 20)], form=FileFormat.ORC)
    metastore = StandIn([], metadata_location=table.metadata_location)
    found = listed(metastore, format=InputFormat.ICEBERG)
    assert found == [InputShard(one, 10, 0, "parquet", snapshot=second), InputShard(two, 20, 0, snapshot=second)]
    found = listed(metastore, format=InputFormat.ICEBERG, snapshot=first)
    assert found == [InputShard(one, 10, 0, "parquet", snapshot=first)]
    with pytest.raises(SourceMissing, match=r"web\.clicks has no snapshot 7; "):
        listed(metastore, format=InputFormat.ICEBERG, snapshot=7)
    with pytest.raises(SourceMissing, match="is not a table of Iceberg; remove `format: iceberg`"):
        listed(StandIn([]), format=InputFormat.ICEBERG)


def test_row_groups_of_an_iceberg_table(stores: JobStores, tmp_path: Path) -> None:
    file = InputShard(f"file://{SAMPLE}", SAMPLE.stat().st_size, 0, "parquet", snapshot=4)
    spec = InputSpec(table="web.clicks", format=InputFormat.ICEBERG, split_size=Memory(1))
    [shard] = find_table_shards("train", spec, [file], stores)
    assert (shard.row_groups, shard.format, shard.snapshot, shard.modified_ms) == ((0, 4), "parquet", 4, 0)


def test_deleted_rows_in_files_of_their_own(stores: JobStores, tmp_path: Path) -> None:
    table = IcebergTable(LocalStorage(), f"file://{tmp_path}")
    table.append([(f"file://{tmp_path}/1.parquet", 10)])
    table.append([(f"file://{tmp_path}/2.parquet", 10)], DataFileContent.POSITION_DELETES)
    with pytest.raises(SourceMissing, match=r"merge-on-read.*rewrite_data_files\(table => 'web\.clicks'"):
        listed(StandIn([], metadata_location=table.metadata_location), format=InputFormat.ICEBERG)


def test_no_metastore_and_no_library(monkeypatch: pytest.MonkeyPatch, stores: JobStores) -> None:
    with pytest.raises(SourceMissing, match=r"inputs\.train\.table: the tony connection names no Hive metastore; "):
        listed(None)
    monkeypatch.setitem(sys.modules, "hive_metastore", None)
    said = "the Airflow worker lacks hive_metastore; install the extra: pip install 'tony-provider[hive]'"
    assert metastore_problem(HiveMetastore(["thrift://localhost:1"], "alice")) == said


def test_a_wrong_address() -> None:
    metastore = HiveMetastore(["thrift://localhost:1", "thrift://localhost:2"], "alice")
    with pytest.raises(StorageUnreachable, match="Connection refused; check `hive_metastore` and `kerberos`"):
        metastore.check()


class Accepting:
    """A stand-in for tickets, whose exchange is complete after the server's first answer."""

    def step(self, server: str, _context: object, heard: bytes | None) -> tuple[bytes, bool]:
        return f"ticket for {server}".encode(), heard is not None

    def forget(self, _context: object) -> None: ...


def test_a_server_that_skips_the_proof_of_its_identity() -> None:
    """Its answers would name files of its own."""
    with socket.create_server(("localhost", 0)) as server:

        def accept_anybody() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"\x05\0\0\0\0")  # complete

        answering = threading.Thread(target=accept_anybody)
        answering.start()
        address = f"thrift://localhost:{server.getsockname()[1]}"
        metastore = HiveMetastore([address], "alice", "hive/_HOST@REALM", cast(Tickets, Accepting()))
        with pytest.raises(StorageAuthError, match="refuses the Kerberos ticket"):
            metastore.check()
        answering.join()
