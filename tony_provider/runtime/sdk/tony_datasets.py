"""Inputs of a tony job as batches, and as datasets of TensorFlow and PyTorch; reached by ``tony_sdk``.

``read`` says what comes of a shard: a function that takes it and yields examples. Default: its records, see
``TaskShard.records``. The libraries are imported only by the function that is named after them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

if TYPE_CHECKING:
    from tony_provider.runtime.sdk.tony_inputs import TaskShard

    Read = Callable[[TaskShard], Iterable[Any]]
    Local = Union[str, Iterable[str], None]


def batches(
    name: str, size: int, read: Optional[Read] = None, local: Local = None, format: Optional[str] = None
) -> Iterator[list[Any]]:
    """Lists of ``size`` examples, the last one of each shard perhaps shorter: none has examples of two shards.

    With a queue a shard is committed when the loop comes for the batch after its last one, and no sooner.
    """
    if size < 1:
        raise ValueError("a batch has at least one example")
    for shard in _shards(name, local, format):
        examples = iter((read or _records)(shard))
        while batch := list(islice(examples, size)):
            yield batch


def tf_dataset(
    name: str,
    read: Optional[Read] = None,
    signature: Any = None,
    local: Local = None,
    format: Optional[str] = None,
) -> Any:
    """A ``tf.data.Dataset`` of the examples of this task's part, from its beginning for each epoch.

    ``signature`` is what one is, as ``output_signature`` of ``from_generator`` wants it; default: bytes. Distribution
    strategies leave a part as it was dealt (``AutoShardPolicy.OFF``). Raises InputError for a queue: what reads ahead
    would commit shards before they are used.
    """
    _refuse_queue(name)
    tf = importlib.import_module("tensorflow")

    def examples() -> Iterator[Any]:
        for shard in _shards(name, local, format):
            yield from (read or _records)(shard)

    spec = tf.TensorSpec((), tf.string) if signature is None else signature
    dataset = tf.data.Dataset.from_generator(examples, output_signature=spec)
    if not importlib.import_module("tony_inputs").is_part(name):
        return dataset
    options = tf.data.Options()  # else a worker would skip the others' share of what is its own already
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def torch_dataset(name: str, read: Optional[Read] = None, local: Local = None, format: Optional[str] = None) -> Any:
    """An ``IterableDataset`` of the examples of this task's part, from its beginning for each epoch.

    The processes of a ``DataLoader`` divide the shards among themselves. Raises InputError for a queue: what reads
    ahead would commit shards before they are used.
    """
    _refuse_queue(name)
    local = local if local is None or isinstance(local, str) else list(local)
    torch_data: Any = importlib.import_module("torch.utils.data")

    class Examples(torch_data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            shards, process = _shards(name, local, format), torch_data.get_worker_info()
            if process is not None:
                shards = islice(shards, process.id, None, process.num_workers)
            for shard in shards:
                yield from (read or _records)(shard)

        def __reduce__(self) -> Any:
            """For a ``DataLoader`` whose processes are started by ``spawn``: the class is made there, too."""
            return torch_dataset, (name, read, local, format)

    return Examples()


def _shards(name: str, local: Local, format: Optional[str]) -> Iterator[TaskShard]:
    shards: Iterator[TaskShard] = importlib.import_module("tony_inputs").inputs(name, local, format)
    return shards


def _records(shard: TaskShard) -> Iterator[Any]:
    return shard.records()


def _refuse_queue(name: str) -> None:
    tony_inputs = importlib.import_module("tony_inputs")
    if tony_inputs.is_queue(name):
        raise tony_inputs.InputError(
            f"input {name}: its deal is `queue`, and a dataset that reads ahead would commit shards before they are "
            "used; loop over tony_sdk.batches or tony_sdk.inputs instead"
        )
