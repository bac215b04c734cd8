"""The final report of an application master on the local cluster, for the Airflow side: the part that the
ResourceManager plays on YARN. All functions block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional

import attrs

from tony_provider.runtime.codec import dump_json, load_json
from tony_provider.runtime.protocol.status import FinalStatus

FINISHED_FILE = "finished.json"  # in LocalAccess.root


@attrs.frozen
class FinalReport:
    """How an application ended, in the words of its master."""

    final_status: FinalStatus
    diagnostics: str
    tracking_url: str
    finished_ms: int  # epoch


def write_report(root: Path, report: FinalReport) -> None:
    """Write the report in one act. Raises OSError."""
    partial = root / f".{FINISHED_FILE}.part"
    partial.write_bytes(dump_json(report))
    partial.replace(root / FINISHED_FILE)


def read_report(root: Path) -> Optional[FinalReport]:
    """The report; None: the application master has not said how it ended, or not yet. Raises CodecError, OSError."""
    try:
        return load_json((root / FINISHED_FILE).read_bytes(), FinalReport)
    except FileNotFoundError:
        return None
