"""The one list of what reads foreign bytes: jobs' files, answers and records, and programs' checkpoints.

``tests.fuzz.test_fuzz`` holds it against the code: each file that takes bytes apart is imported here, or named in
``NOT_FOREIGN`` with the reason.
"""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import pickle
import signal
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from tests.advice.cases import history
from tests.runtime.am.descriptions import DESCRIPTION
from tests.runtime.checkpoint import hostile
from tony_provider.cluster.application_secrets import registries_in
from tony_provider.cluster.environments.inspection import PexError, machines_in, packages_of_archive, wheels_of
from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.records.history import SpecificationRecord
from tony_provider.cluster.records.summary import JobSummary, plain_of, read_summary
from tony_provider.cluster.training.results import Delivered
from tony_provider.importers.key_table import NotImportable
from tony_provider.importers.read_job import imported_from
from tony_provider.runtime.am import message_limits
from tony_provider.runtime.application import ApplicationDescription
from tony_provider.runtime.application_history import (
    EventSegmentHeader,
    SampleSegmentHeader,
    compressed,
    read_event_segment,
    read_segment,
)
from tony_provider.runtime.artifacts.manifest import ALGORITHMS, Kind, inner_target, is_inside, scan
from tony_provider.runtime.checkpoint.catalog import check_manifest
from tony_provider.runtime.checkpoint.content import readers, tensorflow_files, torch_files
from tony_provider.runtime.checkpoint.content.zips import Unreadable
from tony_provider.runtime.checkpoint.save_finder import SaveFinder
from tony_provider.runtime.checkpoint.stored_checkpoint import DamagedCheckpoint, Manifest, Owner
from tony_provider.runtime.common.archives import READ_ERRORS, ArchiveError, unpack_archive
from tony_provider.runtime.common.binary import InvalidMessage, crc32c
from tony_provider.runtime.common.bounds import BoundedJsonError, read_json
from tony_provider.runtime.common.codec import CodecError, load_json, to_plain
from tony_provider.runtime.common.python_packages import EnvironmentRecord, WheelName
from tony_provider.runtime.common.text import for_terminal, one_line, printable
from tony_provider.runtime.executor import progress as event_records
from tony_provider.runtime.executor.kept_results import ReturnedError, read_returned
from tony_provider.runtime.executor.progress import ProgressReader
from tony_provider.runtime.executor.user_environment import NodePython
from tony_provider.runtime.frameworks.base import ClusterSpec, TaskAddress
from tony_provider.runtime.hadoop.errors import CredentialsError
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.inputs.finding import ParquetError, parse_footer
from tony_provider.runtime.inputs.shards import InputShard, ShardCommit
from tony_provider.runtime.jobspec.model import Role
from tony_provider.runtime.outputs.publication import OutputMark
from tony_provider.runtime.protocol import messages, tony_pb2
from tony_provider.runtime.protocol.http_messages import OutputPiece
from tony_provider.runtime.protocol.master_files import FinalReport
from tony_provider.runtime.protocol.status import JobStatus, TokenLife
from tony_provider.runtime.protocol.tunnel_streams import FrameError, FrameReader, pack_frames
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.runtime.storage.webhdfs import store
from tony_provider.runtime.storage.webhdfs.transport import NotNow, WebHdfsAnswer, check_answer
from tony_provider.watching.task_output import OutputLines

SAMPLES = Path(__file__).parents[1] / "runtime"

Seal = Callable[[bytes], bytes]
JSON_OF_ALL = [
    b'{"step":5,"entry":"a","files":[{"path":"a","size":1,"checksum":"crc32:0a1b2c3d"}]}',
    b'{"a":[1,-2.5e3,null,true,"\\u00e9\\n"],"b":{"c":{}}}',
]


def as_it_is(data: bytes) -> bytes:
    return data


@attrs.frozen
class Parser:
    """What reads foreign bytes, with valid ones to begin with.

    ``seal`` makes checksums and compression of what was changed, so that it gets past them.
    """

    name: str
    run: Callable[[bytes], Any]
    seeds: Callable[[], Sequence[bytes]]
    declared: tuple[type[Exception], ...] = ()
    seal: Seal = as_it_is

    @property
    def is_sealed(self) -> bool:
        return self.seal is not as_it_is


def _json(plain: object) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode()


def in_a_file(read: Callable[[Path], Any], suffix: str = "") -> Callable[[bytes], Any]:
    directory = tempfile.TemporaryDirectory(prefix="tony-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    path = Path(directory.name) / f"step-5{suffix}"

    def run(data: bytes) -> Any:
        assert directory.name
        path.write_bytes(data)
        return read(path)

    return run


def reader(name: str, seeds: Callable[[], Sequence[bytes]], seal: Seal = as_it_is, suffix: str = "") -> Parser:
    """One of the parsers of checkpoints' files."""
    return Parser(
        f"checkpoint-{name}{suffix}", in_a_file(readers.READERS[name], suffix), seeds, (Unreadable, OSError), seal
    )


def record(cls: type[Any], plain: object, *more: Callable[[Any], Any]) -> Parser:
    """A record of JSON."""

    def run(data: bytes) -> None:
        found = load_json(data, cls, ignore_unknown=True)
        for each in more:
            each(found)

    return Parser(f"record-{cls.__name__}", run, lambda: [_json(plain)], (CodecError, DamagedCheckpoint))


def samples(*patterns: str) -> Callable[[], Sequence[bytes]]:
    """Files of ``tests/runtime``."""

    @functools.cache
    def found() -> Sequence[bytes]:
        every = [path.read_bytes() for pattern in patterns for path in sorted(SAMPLES.glob(pattern)) if path.is_file()]
        return [each for each in every if len(each) <= 64 << 10] or every[:1]

    return found


def zip_of(name: str) -> Seal:
    def seal(data: bytes) -> bytes:
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("config.json", b"{}")
            archive.writestr(name, data)
        return made.getvalue()

    return seal


def bundle_of(entries: bytes) -> bytes:
    return hostile.index(hostile.block(entries))


def database_of(data: bytes) -> bytes:
    body = bytes.fromhex("0cdb3a2a") + (len(data) + 16).to_bytes(8, "little") + data
    return body + crc32c(body).to_bytes(4, "little")


def with_header(header: object) -> Seal:
    return lambda text: compressed([_json(header) + b"\n", text])


def _safetensors(data: bytes) -> bytes:
    return hostile.safetensors(data) + bytes(32)


def _npy() -> list[bytes]:
    header = "{'descr': '<i8', 'fortran_order': False, 'shape': (), }"
    return [hostile.npy(header) + bytes(8), hostile.npy(header.replace("()", "(2, 3)")) + bytes(48)]


def _pickles() -> list[bytes]:
    plain = {"step": 7, "epoch": 1, "model": {"a": [1.5, None, (1, 2)], "b": b"x" * 300}, "long": 2**100}
    return [*(pickle.dumps(plain, protocol) for protocol in range(6)), hostile.pickle_that_names_a_doubled_tuple()]


_NAMES = (
    "a-1.pt",
    "a-2.index",
    "a-3.npz",
    "a-4.tony.json",
    "a-5.keras",
    "a-6.h5",
    "latest",
    "30/_CHECKPOINT_METADATA",
    "30/default/_METADATA",
    "30/default/manifest.ocdbt",
    "checkpoint-7/model.safetensors.index.json",
    "checkpoint-7/trainer_state.json",
    "step_5/.metadata",
    "step_5/__0_0.distcp",
)


def _saves(data: bytes) -> None:
    """Find the saves of a directory that holds the bytes under several names."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        for each in _NAMES:
            path = Path(name, each)
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(data)
        found = SaveFinder(Path(name), world_size=2).find(scan(Path(name)))
        for alone in (True, False):
            found.verified(alone=alone)
            found.loadable(alone=alone)


def _check_manifest(manifest: Manifest) -> None:
    """Check a manifest as the catalog does, and merge its trees as a restore does."""
    check_manifest("hdfs:///a/save-000001-00000000", manifest)
    assert manifest.size >= 0
    for rank in (None, 0, 1):
        for entry in manifest.tree_of(rank).entries:
            assert is_inside(entry.path)
            assert inner_target(entry.path, entry.target) == entry.target or entry.kind is not Kind.LINK
    assert manifest.own_paths(0) <= {entry.path for each in manifest.trees for entry in each.tree.entries}


def _lines(data: bytes) -> None:
    lines = OutputLines()
    lines.add(data)
    lines.end()
    lines.take(0.0)


def _answer(data: bytes) -> None:
    check_answer(WebHdfsAnswer(403, None, data), "hdfs:///a", "read")


def _unpack(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        archive, inside = Path(name, "archive"), Path(name, "inside")
        inside.mkdir()
        archive.write_bytes(data)
        unpack_archive(archive, inside)
        assert sorted(path.name for path in Path(name).iterdir()) == ["archive", "inside"], "something lies beside it"


def _archives() -> list[bytes]:
    from tests.runtime.common import test_archives as made

    kept = [make() for name, make in made.HOSTILE.items() if name != "zip: a long link"]
    return [
        made.tar(("bin/a", made.FILE, ""), ("bin/b", made.LINK, "a")),
        made.zipped(("bin/a", 0o100755, b"x")),
        *kept,
    ]


def _piece(found: OutputPiece) -> bytes:
    return found.data


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def _event() -> bytes:
    value = _field(1, b"loss") + b"\x15" + struct.pack("<f", 0.5)
    return b"\x09" + struct.pack("<d", 1.0) + b"\x10\x05" + _field(5, _field(1, value))


def _cluster() -> bytes:
    tasks = tuple(TaskAddress("worker", at, Role.WORKER, f"node{at}", {"main": 10_000 + at}) for at in range(3))
    return zlib.decompress(messages.ClusterPacker().pack(ClusterSpec(1, tasks)))


_REMOTE = {"RemoteException": {"javaClassName": "a.b", "message": "m"}}


def _scalars(data: bytes) -> list[event_records.Scalar]:
    return list(event_records.read_scalars(data))


def _tokens() -> list[bytes]:
    return [Credentials().to_bytes(), b"HDTS\x01\x03\x0a\x01a"]


def _texts(data: bytes) -> None:
    for_terminal(data)
    one_line(data.decode("utf-8", "replace"))
    printable(data.decode("latin-1"))


def _footer(data: bytes) -> list[tuple[int, int]]:
    return parse_footer(data)


def _footers() -> list[bytes]:
    found = samples("inputs/samples/*.parquet")()
    return [each[-8 - int.from_bytes(each[-8:-4], "little") : -8] for each in found]


def _summary(data: bytes) -> None:
    needed = {field.name: field.name for field in attrs.fields(JobSummary) if field.default is attrs.NOTHING}
    read_summary({**plain_of(data.decode("utf-8", "replace"))[0], **needed})


SAMPLE = {"time_ms": 5, "seconds": 10.0, "task": "worker:0", "step": 5, "metrics": {"loss": 0.5}}
_TREES = [
    [
        {"path": "d", "kind": "directory", "mode": 448, "mtime_ns": 5},
        {"path": "d/a", "kind": "file", "mode": 384, "mtime_ns": 5, "size": 1, "checksum": "crc32:0", "object": "o-0"},
        {"path": "l", "kind": "link", "mode": 511, "mtime_ns": 5, "target": "d/a"},
    ],
    [{"path": "d", "kind": "file", "mode": 384, "mtime_ns": 9, "size": 0, "checksum": "crc32:0"}],
]
MANIFEST = {
    "save": 1,
    "step": 2,
    "trees": [
        {"rank": rank, "tree": {"entries": entries, "objects": {f"o-{rank}": 1}}} for rank, entries in enumerate(_TREES)
    ],
    "format": "pytorch",
    "entry": "d/a",
}
RECORDS = [
    record(JobStatus, to_plain(history().status)),
    record(FinalReport, {"final_status": "SUCCEEDED", "diagnostics": "", "tracking_url": "", "finished_ms": 5}),
    record(Owner, {"application_id": "application_1_1"}),
    record(Delivered, {"try_number": 1, "max_tries": 2, "delivered_ms": 5, "version": 1}),
    record(ApplicationDescription, to_plain(DESCRIPTION)),
    record(Manifest, MANIFEST, _check_manifest),
    record(SpecificationRecord, {"job": {"name": "a"}, "given": {}, "overrides": {}}),
    record(OutputPiece, {"attempt": 1, "newest": 1, "start": 0, "end": 5, "text": "abc"}, _piece),
    record(TokenLife, {"issued_ms": 1, "until_ms": 5, "renewed_ms": 3, "max_ms": 9}),
    record(
        EnvironmentRecord,
        {"python": "3.12", "machine": "x86_64", "packages": {"a": "1"}, "built_by": "uv", "built_ms": 5, "size": 5},
        lambda found: found.python_version,
    ),
    record(OutputMark, {"application_id": "a", "training": "t", "written_ms": 5}),
]
CHECKPOINTS = [
    reader("array", lambda: [_json({"shape": [4, 4], "chunks": [2, 2], "zarr_format": 2})]),
    reader(
        "bundle",
        lambda: [
            b"".join(
                hostile.entry(0, key, value)
                for key, value in ((b"", b"\x08\x02"), (b"a", b"\x18\x01\x20\x08\x28\x10"), (b"b", b"\x28\x10"))
            )
        ],
        bundle_of,
    ),
    reader("database", samples("checkpoint/samples/orbax/*/*/manifest.ocdbt"), database_of),
    reader("ends", samples("checkpoint/samples/dcp/**/.metadata")),
    reader("epoch", lambda: [b'{"epoch":3}']),
    Parser(
        "checkpoint-hdf5",
        in_a_file(tensorflow_files.check_hdf5),
        lambda: [b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0" + bytes(24) + struct.pack("<Q", 100) + bytes(52)],
        (Unreadable, OSError),
    ),
    reader("keras", lambda: [b"{}"], zip_of("model.weights.h5")),
    reader("manifest", lambda: JSON_OF_ALL),
    reader("npy", _npy),
    reader("npz", _npy, zip_of("step.npy")),
    reader(
        "shards", lambda: [_json({"weight_map": {"a": "model-00001-of-00002.bin", "b": "model-00002-of-00002.bin"}})]
    ),
    reader("step", samples("checkpoint/samples/orbax/*/_CHECKPOINT_METADATA")),
    reader("torch", _pickles),
    reader("torch", _pickles, zip_of("model/data.pkl"), ".pt"),
    reader("torch", samples("checkpoint/samples/torch/**/*"), suffix=".old.pt"),
    Parser(
        "checkpoint-safetensors",
        in_a_file(torch_files.check_safetensors, ".safetensors"),
        lambda: [_json({"a": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}, "__metadata__": {}})],
        (Unreadable, OSError),
        _safetensors,
    ),
    reader("tree", samples("checkpoint/samples/orbax/8/_METADATA", "checkpoint/samples/orbax/30/default/_METADATA")),
    reader("trainer", lambda: [b'{"global_step":12,"log_history":[{"loss":0.5}]}']),
    reader("zip", lambda: [b"{}"], zip_of("data")),
    *(reader(f"checksum {algorithm}", lambda: [b"abc"]) for algorithm in sorted(ALGORITHMS)),
    Parser("checkpoint-saves", _saves, lambda: [*_pickles(), *JSON_OF_ALL]),
]


def _message(data: bytes) -> None:
    """What an executor sends, as far as it is taken."""
    taken = message_limits.parse_message(data)
    if isinstance(taken, message_limits.AcceptedMessage):
        message_limits.MessageTrimmer().fit(taken)


def _record(data: bytes) -> bytes:
    """The attribute of an empty file, which any program of the user can set."""
    return store._content({"XAttrs": [{"name": store._CONTENT, "value": "0s" + base64.b64encode(data).decode()}]})


def _tunnel_frames() -> list[bytes]:
    opened = tony_pb2.TunnelOpen(task="worker:0", port=20000)
    frames = [tony_pb2.TunnelFrame(stream=1, open=opened), tony_pb2.TunnelFrame(stream=1, data=b"GET / HTTP/1.1")]
    ends = [tony_pb2.TunnelFrame(stream=1, credit=14), tony_pb2.TunnelFrame(stream=1, closed="it broke")]
    return [pack_frames(frames), pack_frames(frames) + pack_frames(ends)]


def _messages() -> list[bytes]:
    progress = tony_pb2.Progress(step=5, total_steps=10, metrics={"loss": 0.5})
    said = [
        tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(rss_bytes=1, progress=progress, activity="running")),
        tony_pb2.FromExecutor(registration=tony_pb2.Registration(host="node-1", ports={"main": 20000})),
        tony_pb2.FromExecutor(exited=tony_pb2.ProcessExited(exit_code=1, output_tail="Traceback", progress=progress)),
    ]
    return [each.SerializeToString() for each in said]


REGISTRIES = b'{"auths": {"registry.example.com": {"auth": "YWxpY2U6c2VjcmV0"}, "b": {}}, "credsStore": "x"}'


def _python(data: bytes) -> NodePython:
    return NodePython.of_output(data.decode("utf-8", "replace"))


def _pex(data: bytes) -> list[WheelName]:
    return wheels_of(io.BytesIO(data))


def _jobs_of_others() -> list[bytes]:
    """Small ones of each system that is imported."""
    rule = {"type": "AFFINITY", "scope": "NODE", "target_tags": ["a"], "node_attributes": {"b": ["c"]}}
    component = {"name": "a", "launch_command": "x", "dependencies": ["b"], "resource": {"cpus": 1, "memory": "1"}}
    component |= {"artifact": {"id": "i:1"}, "placement_policy": {"constraints": [rule]}}
    docker = "<property><name>tony.docker.enabled</name><value>true</value></property>"
    rules = "and(in,node,a:cardinality,rack,a,0,1:b=c)"
    placed = f"<property><name>tony.a.placement-spec</name><value>{rules}</value></property>"
    one = "<property><name>tony.a.instances</name><value>1</value></property>"
    role = {"name": "a", "entrypoint": "bash", "args": ["-c", "torchrun --nproc_per_node 2 a.py"], "env": {"A": "1"}}
    return [
        b"<configuration><property><name>tony.worker.instances</name><value>2</value></property></configuration>",
        f"<configuration>{docker}{placed}{one}</configuration>".encode(),
        b"services: {a: {resources: {memory: 1 GB, vcores: 1}, files: {b: c.zip}, depends: [b], script: source x}}",
        b"services: {a: {resources: {memory: 1, vcores: 1}, files: [{file: b}], nodes: [n], racks: [/r], script: x}}",
        _json({"name": "x", "components": [component], "configuration": {"env": {"A": "${USER}"}}}),
        b"hbox-submit --app-type tensorflow --input /a#b --output /c#d --worker-num 2 --conf hbox.ps.num=1 python a\n",
        b"run_on_yarn(f, task_specs={'a': TaskSpec(2**10 * 3, -1)}, files={**x, 'a': __file__}, queue='q' + 'r')",
        _json({"name": "x", "roles": [role]}),
        b"torchx run dist.ddp -j 1:2x4 --script a.py -- --x '${app_id}'\n",
    ]


EVENT_LINE = _json({"time_ms": 5, "event": "started", "dropped": 3}) + b"\n"
COMMIT = _json({"shard": 1, "task": "w:0", "attempt": 1, "start": 1, "time_ms": 5})
SHARD = _json({"uri": "a", "size": 1, "modified_ms": 5, "row_groups": [0, 1]})
PEX_INFO = _json({"distributions": {"a-1-py3-none-any.whl": "ab", "b-1-cp312-cp312-linux_x86_64.whl": "cd"}})
PYTHON = _json({"executable": "/usr/bin/python3.12", "version": [3, 12], "packages": ["/usr/lib/python3"]})
SUMMARY = _json({"application_id": "a", "seconds": 5, "tasks": [], "metrics": {"loss": 1}})
OTHERS = [
    Parser("json", read_json, lambda: JSON_OF_ALL, (BoundedJsonError,)),
    Parser(
        "event-segment",
        functools.partial(read_event_segment, most_bytes=1 << 20, most_events=1000),
        lambda: [EVENT_LINE, EVENT_LINE * 2],
        seal=with_header(attrs.asdict(EventSegmentHeader())),
    ),
    Parser(
        "sample-segment",
        functools.partial(read_segment, most_bytes=1 << 20, most_samples=1000),
        lambda: [_json(SAMPLE) + b"\n"],
        seal=with_header(attrs.asdict(SampleSegmentHeader())),
    ),
    Parser("commit", ShardCommit.of_line, lambda: [COMMIT], (ValueError,)),
    Parser("shard", InputShard.of_line, lambda: [SHARD], (ValueError,)),
    Parser("parquet", _footer, _footers, (ParquetError,)),
    Parser(
        "addresses", functools.partial(messages.unpack_cluster, 1), lambda: [_cluster()], (ValueError,), zlib.compress
    ),
    Parser("executor-message", _message, _messages),
    Parser(
        "metrics",
        in_a_file(lambda path: ProgressReader(path).poll(0.0)),
        lambda: [b'{"step":5,"total_steps":10,"loss":0.5}\n{"acc":1}\n'],
    ),
    Parser("returned", in_a_file(read_returned), lambda: JSON_OF_ALL, (ReturnedError, OSError)),
    Parser("event-file", _scalars, lambda: [_event()], (InvalidMessage,)),
    Parser("tokens", Credentials.from_bytes, _tokens, (CredentialsError,)),
    Parser("summary", _summary, lambda: [SUMMARY]),
    Parser("record", _record, lambda: [b"content"], (zlib.error, ValueError), zlib.compress),
    Parser("webhdfs", _answer, lambda: [_json(_REMOTE)], (StorageError, NotNow)),
    Parser("output", _lines, lambda: [b"step 1\rstep 2\r\x1b[1mloss\x1b[0m 0.5\n\xe2\x82\xac\n"]),
    Parser(
        "import", in_a_file(lambda path: imported_from([str(path)], command="x")), _jobs_of_others, (NotImportable,)
    ),
    Parser("registries", lambda data: registries_in(data, "config.json"), lambda: [REGISTRIES], (JobRejected,)),
    Parser("tunnel", lambda data: list(FrameReader().take(data)), _tunnel_frames, (FrameError,)),
    Parser("terminal", _texts, lambda: [b"\x1b]0;title\x07\x1b[31mred\x1b[0m"]),
    Parser("python", _python, lambda: [PYTHON], (CodecError,)),
    Parser("pex", _pex, lambda: [PEX_INFO], (PexError,), zip_of("PEX-INFO")),
    Parser("pex-zip", _pex, lambda: [zip_of("PEX-INFO")(PEX_INFO)], (PexError,)),
    Parser("archive-glance", in_a_file(machines_in), _archives),
    Parser("archive-packages", in_a_file(packages_of_archive), _archives),
    Parser("archive", _unpack, _archives, (ArchiveError, *READ_ERRORS)),
]

PARSERS = {each.name: each for each in (*CHECKPOINTS, *RECORDS, *OTHERS)}

# Files that take bytes apart which are no job's, or do so by way of the parsers above.
NOT_FOREIGN = {
    "cli/portal_table.py": "what the tasks and the command have written to Airflow's database",
    "cli/stale.py": "what Airflow's own API server answers",
    "cluster/records/staleness.py": "read_json",
    "cluster/replay.py": "read_json",
    "runtime/executor/replay_runner.py": "the folder that the command has filled, and the program that it runs",
    "cluster/settings.py": "the token in a connection, of which only the end of its validity is read",
    "cluster/token_refresh.py": "read_json",
    "cluster/http.py": "json_object is read_json",
    "cluster/environments/built_environments.py": "what it has packed itself a moment ago",
    "cluster/garbage.py": "read_json",
    "cluster/training/identity.py": "read_json",
    "cluster/environments/runtime_archive.py": "wheels that pip has checked",
    "cluster/yarn/credentials.py": "the worker's own tickets, up to a bound",
    "hooks/connection.py": "Airflow's connection, as its administrators have written it",
    "operators/advice.py": "Airflow's own store of a task",
    "operators/try_state.py": "read_json",
    "runtime/am/records.py": "what this application master has written itself",
    "runtime/executor/checkpoint_limits.py": "answers of its own process, which is fed instead",
    "runtime/executor/task_inputs.py": "the master's part of an input; a bounded line, tested by hypothesis",
    "runtime/notebook/kept_work.py": "what it has written itself, whole as its manifest says",
    "runtime/notebook/jupyter.py": "a server of the same user, up to a bound",
    "runtime/sdk/tony_call.py": "in the user process; so all of sdk",
    "runtime/sdk/tony_mpi.py": "proven to be of this job",
    "runtime/sdk/tony_inputs.py": "answers of the executor",
    "runtime/sdk/tony_records.py": "the program's own inputs",
    "runtime/sdk/tony_xgboost.py": "answers of the executor",
    "runtime/parsing/parse.py": "what an author writes; hypothesis in the tests of parsing",
}


def _endless(_: bytes) -> None:
    while True:
        pass


def _crash(_: bytes) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


# They show that the watchdog sees what it is there for.
SELFTESTS = {
    f"selftest-{name}": Parser(f"selftest-{name}", run, lambda: [b"abc"])
    for name, run in {
        "endless": _endless,
        "memory": lambda _: [bytes(64 << 20) for _ in range(100)],
        "crash": _crash,
        "raises": lambda _: 1 // 0,
    }.items()
}


def parser_of(name: str) -> Parser:
    """The parser of that name, or what tests the watchdog."""
    return (PARSERS | SELFTESTS)[name]
