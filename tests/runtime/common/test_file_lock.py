from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tony_provider.runtime.common.files import locked

HOLDER = """
import sys
from pathlib import Path
from tony_provider.runtime.common.files import locked
with locked(Path(sys.argv[1]), 10):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(TimeoutError, match=rf"another process has locked {path} for 0.2 s"), locked(path, 0.2):
            pytest.fail("held twice")
        holder.kill()
        with locked(path, 10):
            pass
    with locked(path, 0):
        pass
