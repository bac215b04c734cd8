from __future__ import annotations

from pathlib import Path

from tests.runtime.am.input_shards.conftest import ADDRESS
from tests.runtime.am.local_resource_manager.jobs import stage
from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.am.input_shards import OpenedInput, close_inputs, open_inputs
from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.jobspec.model import InputDeal, InputFormat, InputSpec, JobSpec, Memory, TaskSpec
from tony_provider.runtime.storage import LocalStorage

MIB = 1 << 20


def shards_of(opened: list[OpenedInput]) -> list[InputShard]:
    (data,) = opened
    found = [InputShard.of_line(line) for line in data.listing.lines(range(len(data.listing)))]
    assert list(data.listing.sizes) == [shard.bytes_to_read for shard in found]
    assert len(data.queue) == len(found)
    close_inputs(opened)
    return found


def test_the_next_master_has_the_pieces_of_the_first(tmp_path: Path) -> None:
    """Whatever has become of the files since."""
    data = tmp_path / "data"
    data.write_bytes(bytes(3 * MIB))
    spec = InputSpec([str(data)], InputDeal.QUEUE, format=InputFormat.LINES, split_size=Memory(1))
    description = stage(
        tmp_path, JobSpec("standalone", {"worker": TaskSpec("true")}, inputs={"data": spec})
    ).description
    first = shards_of(open_inputs(Ownership(LocalStorage(), description, 1, b"key"), ADDRESS))
    assert [shard.offset for shard in first] == [0, MIB, 2 * MIB]
    data.unlink()
    assert shards_of(open_inputs(Ownership(LocalStorage(), description, 2, b"key"), ADDRESS)) == first
