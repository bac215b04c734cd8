"""What committed shards name of an output: files that count whatever became of the task that made them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from tony_provider.runtime import contract
from tony_provider.runtime.inputs.commit_log import read_log
from tony_provider.runtime.outputs.output_place import OutputPlace
from tony_provider.runtime.storage import Storage, uris


def committed_files(
    storage: Storage, application_dir: str, input_name: str, place: OutputPlace
) -> Iterator[tuple[str, str]]:
    """The files of an output by part and path, as the log of an input's commits has them. Blocks.

    A shard that stands there twice counts as its last line says: an application master that was replaced may have
    written a commit that it did not answer, and that the next one did not see. Raises StorageError.
    """
    commits = uris.join(application_dir, contract.INPUTS_DIR, f"{input_name}.commits")
    last = array("q")  # the line of each shard
    for line, settled in enumerate(read_log(storage, commits)):
        last.extend([-1] * (settled.shard + 1 - len(last)))
        last[settled.shard] = line
    for line, settled in enumerate(read_log(storage, commits)):
        if settled.failed is None and last[settled.shard] == line:
            for uri in settled.outputs:
                file = place.of_part(uri)
                if file is not None:
                    yield file
