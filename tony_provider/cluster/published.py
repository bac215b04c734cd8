"""Published models: ``versions/<any>/version.json`` below any directory, written when one is complete."""

from __future__ import annotations

VERSIONS_DIR = "versions"
VERSION_FILE = "version.json"  # holds at least ``model_dir`` and ``period_end``
