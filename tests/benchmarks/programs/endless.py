"""A benchmark that does not end; what it has started says who it is, and hears no interrupt."""

import subprocess
import sys
import time
from pathlib import Path

child = subprocess.Popen(["sh", "-c", "trap '' INT; sleep 600"])
Path(sys.argv[-1], "child").write_text(str(child.pid))
time.sleep(600)
