from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.demo.turn import turn

SECOND = """
import sys
from pathlib import Path
from tests.demo.turn import turn
with turn(Path(sys.argv[1])):
    print("mine", flush=True)
"""


def test_a_second_demonstration_waits_for_the_first(tmp_path: Path) -> None:
    home = tmp_path / "new" / "demo"
    with turn(home):
        second = subprocess.Popen([sys.executable, "-c", SECOND, str(home)], stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        said = second.stdout.readline()
        assert said == f"Another demonstration is running in {home}: waiting for it to end …\n"
        assert second.poll() is None
    output, _ = second.communicate(timeout=60)
    assert output == "mine\n"
    assert second.returncode == 0
