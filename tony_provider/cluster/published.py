"""How published models lie below any directory: ``versions/<any>/version.json``, written when one is complete."""

from __future__ import annotations

VERSIONS_DIR = "versions"
VERSION_FILE = "version.json"  # holds at least ``model_dir`` and ``period_end``
