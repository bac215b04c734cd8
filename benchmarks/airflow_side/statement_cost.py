"""What a Python program takes in an interpreter that has loaded something before.

`python -m benchmarks.airflow_side.statement_cost BEFORE PROGRAM` runs both, and prints the cost of the second.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    before, program = (compile(text, "<benchmark>", "exec") for text in sys.argv[1:])
    exec(before, {})
    memory, began, processor = _resident(), time.monotonic(), time.process_time()
    exec(program, {})
    told = {"processor": time.process_time() - processor, "seconds": time.monotonic() - began}
    print("\n" + json.dumps({**told, "memory": (_resident() - memory) / (1 << 20)}))


def _resident() -> int:
    """Bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


if __name__ == "__main__":
    main()
