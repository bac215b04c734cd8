"""Tables of Hive and Iceberg as inputs: their files and partitions, and delegation tokens of the Hive metastore.

The optional extra ``hive`` has the metastore's Thrift client and the reader of Iceberg's metadata. Both come from
PyIceberg. This module logs in at the metastore itself, so PyIceberg needs no Kerberos library.
"""

from __future__ import annotations

import ctypes
import io
import re
import socket
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import attrs

from tony_provider.cluster.errors import SourceMissing
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.text import first_line
from tony_provider.runtime.hadoop.gss import GssError, Tickets, explained
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.jobspec.model import InputFormat, InputSpec
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Storage, read_whole
from tony_provider.runtime.storage.errors import (
    StorageAuthError,
    StorageError,
    StorageUnreachable,
    StorageUnsupported,
)

_EXTRA = "install the extra: pip install 'tony-provider[hive]'"
_METADATA_LIMIT = 1 << 30  # bytes of one file of Iceberg's metadata
_LONGEST_TEXT = 500  # characters of a foreign error message
_LOGIN_LIMIT = 64 << 10  # bytes of one message of the login
_FRAME_LIMIT = 1 << 30  # bytes of one message; Hive's own limit for a client's answer is lower


def metastore_problem(metastore: HiveMetastore | None) -> str:
    """Return why the metastore of a connection, or the libraries for it, cannot be used, or "" if they can."""
    if metastore is None:
        return "the tony connection names no Hive metastore; set its field `hive_metastore`"
    missing = [each for each in ("pyiceberg", "hive_metastore", "thrift") if find_spec(each) is None]
    return f"the Airflow worker lacks {', '.join(missing)}; {_EXTRA}" if missing else ""


_QUERY = "query the Hive metastore"
_NO_LAYER, _INTEGRITY, _CONFIDENTIALITY = 1, 2, 4  # RFC 4752
_ANY_SIZE = b"\xff\xff\xff"


class _TicketLogin:
    """Client's side of the SASL mechanism GSSAPI, with the strongest protection that the server offers."""

    def __init__(self, tickets: Tickets, server: str) -> None:
        self._tickets = tickets
        self._server = server
        self._context = ctypes.c_void_p()
        self._is_authenticated = False  # whether both sides have proved their identity
        self.layer = 0  # protection of messages; 0 until the authentication is complete
        weakref.finalize(self, tickets.forget, self._context)

    def step(self, challenge: bytes) -> bytes:
        if not self._is_authenticated:
            answer, self._is_authenticated = self._tickets.step(self._server, self._context, challenge or None)
            return answer
        offered = self._tickets.unwrap(self._context, challenge)[0]
        self.layer = max((each for each in (_NO_LAYER, _INTEGRITY, _CONFIDENTIALITY) if offered & each), default=0)
        return self._tickets.wrap(self._context, bytes([self.layer]) + _ANY_SIZE, encrypt=False)

    def wrap(self, message: bytes) -> bytes:
        if self.layer == _NO_LAYER:
            return message
        return self._tickets.wrap(self._context, message, encrypt=self.layer == _CONFIDENTIALITY)

    def unwrap(self, wrapped: bytes) -> bytes:
        return wrapped if self.layer == _NO_LAYER else self._tickets.unwrap(self._context, wrapped)


_START, _OK, _COMPLETE = 1, 2, 5  # of Thrift's SASL messages
_HEADER, _LENGTH = 5, 4  # bytes before a message of the login, and before a later one


class _ThriftTransport:
    """Thrift transport over one connection: with frames after a login, otherwise with plain bytes.

    Raises OSError, also at the end of the connection, GssError and StorageAuthError.
    """

    def __init__(self, address: str, login: _TicketLogin | None) -> None:
        parts = urlsplit(address)
        self._socket = socket.create_connection((parts.hostname, parts.port), contract.CALL_SECONDS)
        self._stream: BinaryIO = self._socket.makefile("rb")
        self._content: BinaryIO = io.BytesIO()  # rest of the last frame
        self._written = b""
        self._login = login
        if login is not None:
            self._log_in(login, address)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def readAll(self, size: int) -> bytes:  # noqa: N802 - the name in Thrift
        if self._login is None:
            return self._exactly(size)
        found = self._content.read(size)
        while len(found) < size:
            self._content = io.BytesIO(self._login.unwrap(self._message(_LENGTH)[1]))
            found += self._content.read(size - len(found))
        return found

    def write(self, data: bytes) -> None:
        self._written += data

    def flush(self) -> None:
        message, self._written = self._written, b""
        if self._login is None:
            self._socket.sendall(message)
        else:
            self._send(b"", self._login.wrap(message))

    def _log_in(self, login: _TicketLogin, address: str) -> None:
        self._send(bytes([_START]), b"GSSAPI")
        status, answer = _OK, b""
        while status == _OK:
            self._send(bytes([_OK]), login.step(answer))
            status, answer = self._message(_HEADER)
        if status != _COMPLETE or not login.layer:
            text = first_line(answer.decode("utf-8", "replace"))[:_LONGEST_TEXT]
            raise StorageAuthError(address, "log in to", f"the Hive metastore refuses the Kerberos ticket: {text}", "")

    @property
    def is_encrypted(self) -> bool:
        return self._login is not None and self._login.layer == _CONFIDENTIALITY

    def _send(self, status: bytes, message: bytes) -> None:
        self._socket.sendall(status + len(message).to_bytes(_LENGTH, "big") + message)

    def _message(self, header: int) -> tuple[int, bytes]:
        """Return the first byte of a header, and the message whose length is in the header's last bytes."""
        start = self._exactly(header)
        length = int.from_bytes(start[-_LENGTH:], "big")
        if length > (_LOGIN_LIMIT if header == _HEADER else _FRAME_LIMIT):
            raise OSError("its answer is not SASL; the metastore may not use Kerberos")
        return start[0], self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise OSError("it closed the connection")
        return data


@attrs.frozen
class HiveMetastore:
    """Access to a Hive metastore for one user. Implements ``TokenServer``.

    All methods raise StorageError.
    """

    addresses: list[str]  # thrift://host:port of each metastore; the first one that accepts a connection is used
    user: str  # user of jobs
    principal: str = "hive/_HOST"  # of the metastores, with Kerberos
    tickets: Tickets | None = None  # None without Kerberos
    insecure: bool = False  # whether tokens may be fetched without encryption

    @property
    def name(self) -> str:
        """First address, which names the tokens."""
        return self.addresses[0]

    def check(self) -> None:
        """Raise StorageError if no metastore answers."""
        with self._client() as client:
            client.get_all_databases()

    def get_delegation_token(self, renewer: str = "") -> str:
        """Fetch a token for the user, as text. Its renewer is always the owner of this process's ticket."""
        with self._client(encrypted=not self.insecure) as client:
            assert self.tickets is not None  # noqa: S101 - only clusters with Kerberos have tokens
            owner, _ = self.tickets.owner()
            return str(client.get_delegation_token(self.user, owner))

    def renew_delegation_token(self, token: str) -> int:
        """Renew a token; return its expiry in epoch milliseconds."""
        with self._client() as client:
            return int(client.renew_delegation_token(token))

    def cancel_delegation_token(self, token: str) -> None:
        """Cancel a token."""
        with self._client() as client:
            client.cancel_delegation_token(token)

    def table(self, name: str) -> Any:
        """Return the table (``database.table``) as a Thrift object. Raises SourceMissing if it does not exist."""
        from hive_metastore.ttypes import NoSuchObjectException

        with self._client() as client:
            try:
                return client.get_table(*name.split("."))
            except NoSuchObjectException as error:
                raise SourceMissing(f"the Hive metastore {self.name} has no table {name}; correct its name") from error

    def partitions(self, name: str, filter_text: str) -> list[Any]:
        """Return the partitions of a table that match a filter, as Thrift objects. An empty filter matches all."""
        with self._client() as client:
            return list(client.get_partitions_by_filter(*name.split("."), filter_text, -1))

    @contextmanager
    def _client(self, *, encrypted: bool = False) -> Iterator[Any]:
        if why := metastore_problem(self):
            raise StorageUnsupported(self.name, _QUERY, why)
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.Thrift import TException

        try:
            with closing(self._connect()) as connection:
                if encrypted and not connection.is_encrypted:
                    why = "it does not encrypt, so others could read the token (hadoop.rpc.protection, not privacy)"
                    advice = "set `insecure_http` in the tony connection if the network is trusted"
                    raise StorageAuthError(self.name, "fetch a token of", why, advice)
                client = Client(TBinaryProtocol(connection))
                if self.tickets is None:
                    client.set_ugi(self.user, [])
                yield client
        except TException as error:
            text = explained(first_line(str(error.message))[:_LONGEST_TEXT])
            raise StorageError(self.name, _QUERY, text, "") from error
        except GssError as error:
            raise StorageAuthError(self.name, _QUERY, str(error), "") from error
        except (ValueError, IndexError) as error:  # of Thrift, for bytes that it does not understand
            raise StorageError(self.name, _QUERY, f"its answer cannot be read: {error}", "") from error
        except OSError as error:
            advice = "check `hive_metastore` and `kerberos` in the tony connection"
            raise StorageUnreachable(self.name, _QUERY, error.strerror or str(error), advice) from error

    def _connect(self) -> _ThriftTransport:
        """Connect to the first metastore that accepts a connection."""
        *others, last = self.addresses
        for address in others:
            with suppress(OSError):
                return _ThriftTransport(address, self._login(address))
        return _ThriftTransport(last, self._login(last))

    def _login(self, address: str) -> _TicketLogin | None:
        if self.tickets is None:
            return None
        service, _, host = self.principal.partition("@")[0].partition("/")
        return _TicketLogin(self.tickets, f"{service}@{host.replace('_HOST', urlsplit(address).hostname or '')}")


def table_lists(
    inputs: Mapping[str, InputSpec], metastore: HiveMetastore | None, storage: Storage, store_uri: str
) -> dict[str, list[InputShard]]:
    """List the files or partitions of each input that is a table, by the input's name.

    ``storage`` is the job's own store, which contains ``store_uri``. Raises SourceMissing with the input's key, and
    StorageError.
    """
    found = {}
    files = _StoredFiles(storage, uris.scheme(store_uri))
    for name, spec in inputs.items():
        try:
            if spec.table is not None:
                found[name] = sorted(_listed(spec.table, spec, metastore, files), key=lambda each: each.uri)
                for each in found[name]:
                    files.check(each.uri)
        except SourceMissing as error:
            raise SourceMissing(f"{child('inputs', name, 'table')}: {error}") from error
        except ValueError as error:  # of PyIceberg, for metadata that it does not understand
            what = f"PyIceberg cannot read {spec.table}: {first_line(str(error))[:_LONGEST_TEXT]}"
            remedy = "name another snapshot, or rewrite the table's data files"
            raise SourceMissing(f"{child('inputs', name, 'table')}: {what}; {remedy}") from error
    return found


def _listed(name: str, spec: InputSpec, metastore: HiveMetastore | None, files: _StoredFiles) -> Iterator[InputShard]:
    if (why := metastore_problem(metastore)) or metastore is None:
        raise SourceMissing(why)
    if spec.format is InputFormat.ICEBERG:
        return _iceberg_files(name, spec, metastore, files)
    return _hive_partitions(name, spec, metastore)


_OTHER_FORMATS = ("delta", "hudi")
_OTHER_INPUT = re.compile("Hoodie|Symlink|Delta")  # in the names of classes that read a table


def _hive_partitions(name: str, spec: InputSpec, metastore: HiveMetastore) -> Iterator[InputShard]:
    """Yield a shard for the directory of each partition, or for the directory of a table without partitions."""
    table = metastore.table(name)
    parameters, columns = table.parameters, [each.name for each in table.partitionKeys]
    if parameters.get("table_type", "").lower() == "iceberg":
        raise SourceMissing(f"{name} is a table of Iceberg: also set `format: iceberg`")
    provider, input_format = parameters.get("spark.sql.sources.provider", ""), table.sd.inputFormat or ""
    if provider.lower() in _OTHER_FORMATS or "storage_handler" in parameters or _OTHER_INPUT.search(input_format):
        what = provider or parameters.get("storage_handler") or input_format
        raise SourceMissing(
            f"{name} is a table of {what}, so its directories may contain other rows; copy it to Parquet"
        )
    if parameters.get("transactional", "").lower() == "true" or table.tableType == "VIRTUAL_VIEW":
        raise SourceMissing(f"{name} is a view or transactional, so its files lack its rows; copy it to another table")
    if not columns and spec.partitions is None:
        yield InputShard(table.sd.location, 0, 0)
        return
    found = metastore.partitions(name, spec.partitions or "") if columns else []
    if not found:
        which = f"no partition of {name} matches {spec.partitions!r}" if columns else f"{name} has no partitions"
        what = which if spec.partitions else f"{name} is empty"
        raise SourceMissing(f"{what}; correct `partitions`, or first run the task that writes the data")
    for each in found:
        yield InputShard(each.sd.location, 0, 0, partition=dict(zip(columns, each.values, strict=True)))


def _iceberg_files(name: str, spec: InputSpec, metastore: HiveMetastore, files: _StoredFiles) -> Iterator[InputShard]:
    """Yield a shard for each data file of the wanted snapshot, or of the current one."""
    location = metastore.table(name).parameters.get("metadata_location")
    if not location:
        raise SourceMissing(f"{name} is not a table of Iceberg; remove `format: iceberg`")
    table = _open_iceberg(name, location, files)
    snapshot = table.current_snapshot() if spec.snapshot is None else table.snapshot_by_id(spec.snapshot)
    if snapshot is None:
        if spec.snapshot is None:
            raise SourceMissing(f"{name} has no snapshot; first run the task that writes the table")
        raise SourceMissing(f"{name} has no snapshot {spec.snapshot}; correct `snapshot`")
    number = snapshot.snapshot_id
    for task in table.scan(snapshot_id=number).plan_files():
        if task.delete_files:
            raise SourceMissing(
                f"snapshot {number} of {name} has delete files (merge-on-read), which tasks would ignore; compact "
                f"it: CALL system.rewrite_data_files(table => '{name}', options => map('delete-file-threshold', '1'))"
            )
        file = task.file
        parquet = InputFormat.PARQUET.value if file.file_format.value == "PARQUET" else None
        yield InputShard(file.file_path, file.file_size_in_bytes, 0, parquet, snapshot=number)


@attrs.frozen
class _StoredFiles:
    """The part of ``pyiceberg.io.FileIO`` that reads metadata: from the job's store, with the job's access."""

    storage: Storage
    scheme: str  # of the store's URIs

    def check(self, uri: str) -> None:
        """Raise SourceMissing if a file's URI has another scheme than the job's store, such as file://.

        The owner of a table chooses its location, and may be another user.
        """
        if uris.scheme(uri) != self.scheme:
            raise SourceMissing(f"{uri} is not on the store of the staging directory; move the table there")

    def new_input(self, location: str) -> Any:
        """Return a PyIceberg ``InputFile``."""

        def open_file(*, seekable: bool = True) -> io.BytesIO:
            self.check(location)
            return io.BytesIO(read_whole(self.storage, location, _METADATA_LIMIT))

        return SimpleNamespace(location=location, open=open_file)


def _open_iceberg(name: str, location: str, files: Any) -> Any:
    """Read a table's metadata. Return a ``pyiceberg.table.Table``."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import Table

    metadata = FromInputFile.table_metadata(files.new_input(location))
    return Table(tuple(name.split(".")), metadata, location, files, NoopCatalog("tony"))
