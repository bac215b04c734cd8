"""``python -m tests.documents``: write what docs/ has from the code anew, as ``make docs-tables`` does."""

from __future__ import annotations

from tests.documents import lifecycles, reference

for part in (reference, lifecycles):
    part.PAGE.write_text(part.renewed(part.PAGE.read_text()))
