"""``python -m tests.documents``: write the generated blocks of the documents, as ``make docs-tables`` does."""

from __future__ import annotations

from tests.documents import performance
from tests.documents.made import PAGES, renewed

for page in PAGES:
    page.write_text(renewed(page.read_text()))
performance.draw()
