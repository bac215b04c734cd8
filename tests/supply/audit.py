"""``python -m tests.supply.audit``: known holes in what constraints.txt and the runtime's hashes pin, by pip-audit.

Exit code 0: none is known. 1: there are some. 3: nobody could be asked about some packages, which says nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.supply.tools import PIP_AUDIT, ROOT, run_tool

PINNED = ("constraints.txt", "tony_provider/runtime/requirements-hashes.txt")
HOLES, NOT_LOOKED_AT = 1, 3


def main() -> int:
    """An exit code."""
    return max(audit(ROOT / name) for name in PINNED)


def audit(pinned: Path) -> int:
    """Look at one file of pins; say what was found."""
    options = ["--requirement", str(pinned), "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner=off"]
    done = run_tool(PIP_AUDIT, "pip-audit", *options)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"{pinned.name}: nothing could be looked up: {last_line(done.stderr)}")
        return NOT_LOOKED_AT
    return judge(pinned.name, found)


def judge(name: str, found: list[dict[str, Any]]) -> int:
    """An exit code, and lines for people. pip-audit itself calls it a success to have been told nothing."""
    skipped = [each["name"] for each in found if "skip_reason" in each]
    holes = [(each, hole) for each in found for hole in each.get("vulns", [])]
    for each, hole in holes:
        mended = ", ".join(hole.get("fix_versions", [])) or "no release"
        print(f"{name}: {each['name']} {each['version']}: {hole['id']}, mended in {mended}")
    looked_at = len(found) - len(skipped)
    print(f"{name}: {len(holes)} known holes in {looked_at} packages; nothing could be learnt of {len(skipped)}")
    if holes:
        return HOLES
    return NOT_LOOKED_AT if skipped or not found else 0


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["pip-audit said nothing"])[-1]


if __name__ == "__main__":
    sys.exit(main())
