"""The list of threats names every place of the product that interprets text, and proofs that exist."""

from __future__ import annotations

import re

import pytest

from tests.documents.made import renewed
from tests.secure.row import ROWS
from tests.secure.rows import in_order
from tests.secure.threats import FLOWS, PAGE, REPOSITORY, SINKS, Flow, product


@pytest.mark.parametrize("name", SINKS)
def test_every_place_that_interprets_text_is_listed(name: str) -> None:
    sink = SINKS[name]
    found = sink.found(product())
    advice = "decide which foreign text gets there, and list the file and the flow in tests/secure/threats.py"
    assert sorted(found - set(sink.files)) == [], advice
    assert sorted(set(sink.files) - found) == [], "these files interpret nothing any more"


def test_foreign_text_gets_to_each_kind_of_place() -> None:
    assert {flow.sink for flow in FLOWS} == SINKS.keys()


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: f"{flow.source} - {flow.sink}")
def test_a_protection_has_rows_or_tests(flow: Flow) -> None:
    assert in_order()
    assert flow.proofs
    for proof in flow.proofs:
        file, _, test = proof.partition("::")
        if proof in ROWS:
            continue
        text = (REPOSITORY / file).read_text()
        assert re.search(rf"def {re.escape(test)}\b" if test else r"def test_", text), proof


def test_each_claim_of_the_security_page_names_its_proofs() -> None:
    page = (REPOSITORY / "tests/secure/THREATS.md").read_text()
    lines = page.split("## Threats by attacker")[1].split("\n## ")[0]
    rows = [line for line in lines.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    assert in_order()
    for row in rows:
        proofs = re.findall(r"`([^`]+)`", row.rsplit(" | ", 1)[1])
        assert proofs, row
        assert [proof for proof in proofs if proof not in ROWS and not (REPOSITORY / proof).is_file()] == []


def test_the_table_is_that_of_the_list() -> None:
    page = PAGE.read_text()
    assert renewed(page) == page, "make docs-tables"
