"""The end of a local application whose disk is full, on a real small disk."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SETTLE = """
import sys
from pathlib import Path
from tony_provider.cluster.interface import ApplicationState
from tony_provider.cluster.local.application_folder import settle_application
from tony_provider.cluster.local.application_folder import ApplicationFolder

folder = ApplicationFolder(Path("/opt/applications/application_1700000000000_0001"))
(folder.path / "containers" / "work").mkdir(parents=True)
(folder.path / "lock").touch()
rest = Path("/opt/rest") if sys.argv[1] == "elsewhere" else folder.path / "containers" / "work" / "rest"
with rest.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
assert settle_application(folder).state is ApplicationState.FAILED
assert settle_application(folder).state is ApplicationState.FAILED
print(sorted(path.name for path in folder.path.iterdir()))
"""


def _on_a_small_disk(command: list[str]) -> list[str]:
    mount = 'mount -t tmpfs -o size=1m none /opt && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "/bin/sh", "-c", mount, "sh", *command]


@pytest.mark.skipif(
    subprocess.run(_on_a_small_disk(["true"]), capture_output=True, check=False).returncode != 0,
    reason="no mount namespace may be made here",
)
@pytest.mark.parametrize(("what_fills_it", "left"), [("its work", ["ended.json", "lock"]), ("elsewhere", ["lock"])])
def test_a_full_disk_hides_no_end(what_fills_it: str, left: list[str]) -> None:
    """Seen: each command about the application, also gc, failed with a traceback and left another file."""
    done = subprocess.run(
        _on_a_small_disk([sys.executable, "-c", _SETTLE, what_fills_it]),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(left)
    assert ("Free space there" in done.stderr) == (what_fills_it == "elsewhere")
