"""What the fuzzer has found, as tests."""

from __future__ import annotations

import pytest

from tony_provider.runtime.inputs.shards import InputShard
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsAnswer, check_answer

DEEP = b'{"a":' * 100_000


def test_an_answer_that_is_nested_deeply() -> None:
    with pytest.raises(StorageError):
        check_answer(WebHdfsAnswer(403, None, DEEP), "hdfs:///a", "read")


def test_a_shard_that_is_nested_deeply() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        InputShard.of_line(DEEP)
