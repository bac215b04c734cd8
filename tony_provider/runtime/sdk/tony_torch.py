"""An input of a tony job as a dataset of PyTorch; reached by ``tony_sdk.torch_dataset``. Imports torch."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from tony_provider.runtime.sdk.tony_inputs import TaskShard


class ShardExamples(IterableDataset):  # type: ignore[misc]
    """The examples of this task's part. Each process of a ``DataLoader`` has some of the shards.

    What is given to it is pickled where a ``DataLoader`` starts its processes by ``spawn``.
    """

    def __init__(
        self,
        name: str,
        read: Optional[Callable[[TaskShard], Iterable[Any]]],
        local: Union[str, list[str], None],
        format: Optional[str],
    ) -> None:
        super().__init__()
        self._name = name
        self._read = read
        self._local = local
        self._format = format

    def __iter__(self) -> Iterator[Any]:
        shards = importlib.import_module("tony_inputs").inputs(self._name, self._local, self._format)
        process = get_worker_info()
        if process is not None:
            shards = islice(shards, process.id, None, process.num_workers)
        for shard in shards:
            yield from shard.records() if self._read is None else self._read(shard)
