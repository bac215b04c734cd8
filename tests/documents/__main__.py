"""``python -m tests.documents``: write the tables of docs/reference.md anew, as ``make docs-tables`` does."""

from __future__ import annotations

from tests.documents.reference import PAGE, renewed

PAGE.write_text(renewed(PAGE.read_text()))
