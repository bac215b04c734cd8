"""The log of our own programs: a file that somebody else has opened, that stays small and never does harm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tony_provider.runtime.common import helper_processes

_PROGRAM = """
import logging, sys
from tony_provider.runtime.common import helper_processes
helper_processes.configure_log()
for number in range(int(sys.argv[1])):
    logging.info("%06d %s", number, "x" * 1000)
print("went on")
"""


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_its_file_is_turned_over(tmp_path: Path, mode: str) -> None:
    count = 2 * helper_processes.LOG_LIMIT // 1000
    with (tmp_path / "stderr").open(mode) as file:
        subprocess.run([sys.executable, "-c", _PROGRAM, str(count)], stderr=file, check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stderr", "stderr.1"]
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= helper_processes.LOG_LIMIT
    kept = (tmp_path / "stderr.1").read_text() + (tmp_path / "stderr").read_text()
    numbers = [int(line.split()[3]) for line in kept.splitlines()]
    assert numbers == list(range(numbers[0], count))


def test_a_disk_that_takes_nothing_does_no_harm() -> None:
    with Path("/dev/full").open("wb") as file:
        done = subprocess.run([sys.executable, "-c", _PROGRAM, "10"], stderr=file, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (0, b"went on\n")
