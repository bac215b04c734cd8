"""What the runtime archive downloads is what this release names, and an audit that learnt nothing says so."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.supply.audit import HOLES, NOT_LOOKED_AT, judge
from tests.supply.hashes import HASHES, REQUIREMENTS, head
from tony_provider.cluster.environments.runtime_archive import build
from tony_provider.cluster.errors import StagingFailed

PIN = re.compile(
    r"^([\w.-]+)==([\w.]+) (?:; python_full_version .+ )?\\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.MULTILINE,
)


def pins() -> dict[str, str]:
    return {name.replace("_", "-"): version for name, version, _ in PIN.findall(HASHES.read_text())}


def test_all_that_is_downloaded_is_pinned_with_its_hashes_and_from_nowhere_in_particular() -> None:
    text = HASHES.read_text()
    assert PIN.sub("", text) == head(text)
    assert "://" not in text
    lines = [line.split("#")[0].strip() for line in REQUIREMENTS.read_text().splitlines()]
    wanted = {each.name.replace("_", "-"): each for each in map(Requirement, filter(None, lines))}
    assert wanted.keys() == pins().keys()
    assert [name for name, each in wanted.items() if not each.specifier.contains(pins()[name])] == []


def test_another_file_under_the_name_of_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that was broken into, here a directory: the right names and versions, and another content."""
    for name, version in pins().items():
        wheel = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(tmp_path / f"{wheel}-py3-none-any.whl", "w") as file:
            file.writestr(f"{wheel}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            file.writestr(f"{wheel}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{wheel}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(StagingFailed, match="DO NOT MATCH THE HASHES"):
        build(["3.11"], tmp_path / "runtime.zip")
    assert not (tmp_path / "runtime.zip").exists()


CLEAN = {"name": "attrs", "version": "26.1.0", "vulns": []}
HOLE = {"name": "h11", "version": "0.14.0", "vulns": [{"id": "CVE-2025-43859", "fix_versions": ["0.16.0"]}]}
UNKNOWN = {"name": "rich", "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15.0.0)"}


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ([CLEAN], 0),
        ([CLEAN, HOLE], HOLES),
        ([CLEAN, UNKNOWN], NOT_LOOKED_AT),
        ([UNKNOWN, HOLE], HOLES),
        ([], NOT_LOOKED_AT),
    ],
)
def test_what_an_audit_says(found: list[dict[str, Any]], code: int) -> None:
    assert judge("constraints.txt", found) == code
