"""Runs a command, and prints what the kernel says that it took: `python -I rusage.py COMMAND…`, a line of JSON.

A program of its own, since a new process counts the memory of the one that it was forked from as its own: this one has
little. What the command says goes to the standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time

began = time.monotonic()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, usage = os.wait4(pid, 0)
told = {"seconds": time.monotonic() - began, "processor": usage.ru_utime + usage.ru_stime}
print(json.dumps({**told, "memory": usage.ru_maxrss / 1024}))
sys.exit(os.waitstatus_to_exitcode(status))
