"""A short round of ``make fuzz``, its watchdog, and whether every reader of foreign bytes is in its list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tony_provider
from tests.fuzz import parsers, run
from tests.fuzz.run import fuzz
from tony_provider.runtime.checkpoint.content.readers import READERS

PACKAGE = Path(tony_provider.__file__).parent
# What takes bytes apart: whoever adds a file with one of these says what feeds it, or why nobody need.
_READS = re.compile(
    r"json\.loads?\(|read_json\(|\.json\(\)|zlib\.decompress|zipfile\.ZipFile\(|tarfile\.open|gzip\.open|FromString\("
    r"|struct\.unpack|ParseFromString\("
)


def test_a_short_round() -> None:
    outcomes = fuzz(sorted(parsers.PARSERS), 40, seed=20, at_once=1)
    assert [finding for each in outcomes for finding in each.findings] == []
    assert sum(each.inputs for each in outcomes) == 40 * len(parsers.PARSERS)


def test_every_reader_of_checkpoints_is_fed() -> None:
    fed = {name.removeprefix("checkpoint-").partition(".")[0] for name in parsers.PARSERS}
    assert set(READERS) <= fed


def test_every_file_that_takes_bytes_apart_is_fed_or_said_to_be_none() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if not path.name.endswith("_pb2.py") and _READS.search(path.read_text(encoding="utf-8"))
    }
    fed = {name for name in found if name.removesuffix(".py").replace("/", ".") in _imported()}
    assert found - fed == set(parsers.NOT_FOREIGN)


def _imported() -> set[str]:
    text = Path(parsers.__file__).read_text(encoding="utf-8")
    froms = re.findall(r"from tony_provider\.([\w.]+) import \(?([^)\n]+|[^)]+)", text)
    return {f"{module}.{name.strip()}" for module, names in froms for name in names.split(",")} | {m for m, _ in froms}


def test_the_watchdog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An input that takes for ever, or memory, or ends the process, or raises what nobody declared is kept."""
    monkeypatch.setattr(run, "OUTPUT", tmp_path)
    names = ["selftest-endless", "selftest-memory", "selftest-crash", "selftest-raises"]
    outcome = fuzz(names, 2, seed=1, at_once=1, seconds=0.5)[0]
    told = {finding.parser: finding.what for finding in outcome.findings}
    assert told["selftest-endless"] == "took more than 0.5 s of processor time"
    assert told["selftest-memory"].startswith("MemoryError")
    assert told["selftest-crash"] == "ended its process (status -11)"
    assert told["selftest-raises"].startswith("ZeroDivisionError")
    assert {path.suffix for path in tmp_path.iterdir()} == {".bin", ".txt"}
