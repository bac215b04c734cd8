"""Where the current application master listens, and whose word counts."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.protocol import master_files
from tony_provider.runtime.protocol.master_files import MasterAddress
from tony_provider.runtime.storage import LocalStorage, StorageUnreachable

KEY = b"k" * 32
ADDRESS = Address("node-7", 20001)


def written(directory: Path, address: Address = ADDRESS, attempt: int = 1, key: bytes = KEY) -> Path:
    master_files.write_master_address(LocalStorage(), directory.as_uri(), address, attempt, key)
    return directory / contract.MASTER_FILE


def read(directory: Path, key: bytes = KEY) -> MasterAddress | None:
    return master_files.read_master_address(LocalStorage(), directory.as_uri(), key)


@pytest.mark.parametrize("address", [ADDRESS, Address("10.0.0.7", 1), Address("fd00::7", 65535)])
def test_what_was_written_is_read(tmp_path: Path, address: Address) -> None:
    file = written(tmp_path, address, 2)
    assert read(tmp_path) == MasterAddress(address, 2)
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_newest_master_takes_the_former_ones_place(tmp_path: Path) -> None:
    written(tmp_path)
    written(tmp_path, Address("other", 20002), 2)
    assert read(tmp_path) == MasterAddress(Address("other", 20002), 2)


def test_no_file_is_no_address(tmp_path: Path) -> None:
    assert read(tmp_path) is None


def test_another_key_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(tmp_path, key=b"x" * 32)
    assert read(tmp_path) is None
    assert "has no valid signature of this application" in caplog.text


@pytest.mark.parametrize(("field", "value"), [("address", "evil:20001"), ("attempt", 3), ("signature", "\ud800")])
def test_no_part_can_be_changed(tmp_path: Path, field: str, value: object) -> None:
    file = written(tmp_path)
    file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))
    assert read(tmp_path) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr).map(str.encode)
)
def test_nothing_in_the_file_raises(tmp_path: Path, content: bytes) -> None:
    (tmp_path / contract.MASTER_FILE).write_bytes(content)
    assert read(tmp_path) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "no-port", "attempt": 1, "signature": ""},
        {"address": "n:1", "attempt": "1", "signature": ""},
        {"address": "n:1", "attempt": 1},
        {"address": "n:1", "attempt": 1, "signature": "", "more": 1},
    ],
)
def test_malformed_fields_are_no_address(tmp_path: Path, fields: dict[str, object]) -> None:
    (tmp_path / contract.MASTER_FILE).write_text(json.dumps(fields))
    assert read(tmp_path) is None


def test_a_store_that_does_not_answer_is_no_address(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Unreachable(LocalStorage):
        def open_read(self, uri: str, *, offset: int = 0, length: int | None = None) -> object:  # type: ignore[override]
            raise StorageUnreachable(uri, "read", "nobody answers")

    caplog.set_level(logging.WARNING)
    assert master_files.read_master_address(Unreachable(), tmp_path.as_uri(), KEY) is None
    assert "nobody answers" in caplog.text
