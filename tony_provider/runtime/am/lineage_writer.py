"""Writes the lineage record of a successful job, with checksums of the files that it read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Optional

import attrs

from tony_provider.runtime.am.checkpoint_chain import Ownership, SupersededError
from tony_provider.runtime.common import contract
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.concurrency import in_parallel, run_in_threads
from tony_provider.runtime.inputs.finding import BadInputError, find_shards
from tony_provider.runtime.inputs.lineage import CHECKSUMS_FILE, FileSet, InputLineage, Lineage
from tony_provider.runtime.inputs.shards import InputShard, listing_uri
from tony_provider.runtime.jobspec.model import InputDeal
from tony_provider.runtime.protocol.status import JobStatus
from tony_provider.runtime.storage import StorageError, StorageNotFound, uris
from tony_provider.runtime.storage.stores import JobStores

log = logging.getLogger(__name__)

_MOST_CHECKSUMS = 1000  # files whose checksums are kept, because each needs a request to a DataNode of HDFS
_READERS = 16  # threads
_LONGEST = 120.0  # seconds for the whole record


def keep_lineage(ownership: Ownership, result: JobStatus) -> str:
    """Write the lineage record of a successful job. Return the problem, or an empty string.

    Blocks. Raises SupersededError.
    """
    description = ownership.description
    if not description.lineage_file:
        return ""
    until = time.monotonic() + _LONGEST
    (written,) = run_in_threads([partial(_write, ownership, result, until)], _LONGEST, "lineage")
    try:
        written.result(0)
    except SupersededError:
        raise
    except (TimeoutError, _Late):
        problem = f"reading its inputs again took more than {_LONGEST:g} s"
    except (StorageError, ValueError) as error:
        problem = str(error)
    except Exception as error:
        log.exception("the lineage record cannot be written")
        problem = f"internal error: {error!r}"
    else:
        return ""
    return f"the lineage record was not written, so `airflow tony stale` cannot check this model: {problem}"


class _Late(Exception):  # noqa: N818 - says what happened
    pass


@attrs.frozen
class _Writer:
    ownership: Ownership
    stores: JobStores
    until: float
    checksums: dict[str, str] = attrs.field(factory=dict)

    def check_time(self) -> None:
        if time.monotonic() > self.until:
            raise _Late

    def input(self, name: str) -> InputLineage:
        description = self.ownership.description
        spec = description.job.inputs[name]
        listing = listing_uri(description.application_dir, name)
        unchecked: dict[str, InputShard] = {}
        with self.ownership.storage.open_read(listing) as lines:
            files = FileSet.of(self._collected(map(InputShard.of_line, lines), unchecked))
        for uri, checksum in in_parallel(self._checksum, unchecked.values(), _READERS, "checksums"):
            if checksum is not None:
                self.checksums[uri] = checksum
        after = None
        if spec.deal is InputDeal.NONE:
            try:
                after = FileSet.of(find_shards(name, spec, self.stores, self.check_time))
            except BadInputError:
                after = FileSet.of(())
        return InputLineage(spec, files, after)

    def _collected(self, shards: Iterable[InputShard], unchecked: dict[str, InputShard]) -> Iterator[InputShard]:
        """Yield the shards. Add the first shards without a checksum to ``unchecked``, by URI."""
        for each in shards:
            if each.checksum is None and len(unchecked) + len(self.checksums) < _MOST_CHECKSUMS:
                unchecked[each.uri] = each
            yield each

    def _checksum(self, shard: InputShard) -> tuple[str, Optional[str]]:
        """Return the checksum of a file, or None if it has changed since it was listed, or the store has none."""
        self.check_time()
        try:
            storage = self.stores.of(shard.uri)
            checksum, status = storage.checksum(shard.uri), storage.status(shard.uri)
        except StorageNotFound:
            return shard.uri, None
        is_same = (status.size, status.modified_ms) == (shard.size, shard.modified_ms)
        return shard.uri, checksum if is_same else None


def _write(ownership: Ownership, result: JobStatus, until: float) -> None:
    description, storage = ownership.description, ownership.storage
    stores = JobStores(storage, description.application_dir)
    writer = _Writer(ownership, stores, until)
    try:
        inputs = {name: writer.input(name) for name in description.job.inputs}
    finally:
        stores.close()
    ownership.check_newest()
    if writer.checksums:
        uri = uris.join(description.application_dir, contract.INPUTS_DIR, CHECKSUMS_FILE)
        storage.write(uri, dump_json(writer.checksums), overwrite=True)
    lineage = Lineage(
        application_id=description.application_id,
        training=description.training,
        labels=description.labels,
        finished_ms=result.finished_ms or 0,
        submitted_ms=description.submitted_ms,
        chain_dir=description.chain_dir,
        model_dir=result.model_dir,
        warm_start=description.warm_start,
        continues=description.continues,
        fingerprint=description.fingerprint,
        inputs=inputs,
    )
    storage.write_record(description.lineage_file, dump_json(lineage), overwrite=True)
