"""What an application master on the local cluster says at its end, where the Airflow side reads it: the part that the
ResourceManager plays on YARN. All of it blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.codec import dump_json, load_json
from tony_provider.runtime.protocol.status import FinalStatus

FINISHED_FILE = "finished.json"  # in LocalAccess.root


@attrs.frozen
class FinalReport:
    final_status: FinalStatus
    diagnostics: str
    tracking_url: str
    finished_ms: int  # epoch


def write_report(root: Path, report: FinalReport) -> None:
    """In one act. Raises OSError."""
    partial = root / f".{FINISHED_FILE}.part"
    partial.write_bytes(dump_json(report))
    partial.replace(root / FINISHED_FILE)


def read_report(root: Path) -> Optional[FinalReport]:
    """None: the application master has not said how it ended, or not yet. Raises CodecError, OSError."""
    try:
        return load_json((root / FINISHED_FILE).read_bytes(), FinalReport)
    except FileNotFoundError:
        return None
