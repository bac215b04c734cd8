from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.inputs.finding import ParquetError, parse_footer, row_group_sizes
from tony_provider.runtime.storage import LocalStorage

SAMPLES = Path(__file__).parent / "samples"
REAL = (SAMPLES / "pyarrow.parquet").read_bytes()
FOOTER = REAL[-8 - int.from_bytes(REAL[-8:-4], "little") : -8]


def sizes(path: Path) -> list[int]:
    return row_group_sizes(LocalStorage(), str(path), path.stat().st_size)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pyarrow", [914, 934, 940, 678]),
        ("fastparquet", [1950 * plain // (236 + 154 + 516) for plain in (236, 154, 516)]),
        ("empty", [90]),
    ],
)
def test_row_groups_are_those_that_pyarrow_sees(name: str, expected: list[int]) -> None:
    assert sizes(SAMPLES / f"{name}.parquet") == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "too short"),
        (b"PAR1", "too short"),
        (b"name,age\nalice,7\n", "does not end with the marker"),
        (REAL[:-1], "does not end with the marker"),
        (REAL[:-4] + b"PARE", "footer is encrypted"),
        (REAL[:-8] + b"\xff\xff\xff\x7fPAR1", "longer than the file"),
        (b"PAR1" + bytes(50) + (50).to_bytes(4, "little") + b"PAR1", "has no list of row groups"),
        (b"PAR1" + b"\x19\xff\xff" * 20 + (60).to_bytes(4, "little") + b"PAR1", "damaged"),
    ],
)
def test_what_is_no_parquet_file(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ParquetError, match=words):
        sizes(tmp_path / "x")


def test_a_footer_that_is_longer_than_the_first_read(tmp_path: Path) -> None:
    """Key-value metadata, which comes after the row groups, may be of any length; here it is a page of zeros."""
    footer = FOOTER + bytes(1 << 17)
    (tmp_path / "x").write_bytes(REAL + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert sizes(tmp_path / "x") == [914, 934, 940, 678]


def test_a_footer_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(100 << 20)
        file.seek(0, 2)
        file.write((90 << 20).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ParquetError, match="more than the limit of 67108864"):
        sizes(tmp_path / "x")


@given(st.binary(max_size=300))
def test_nonsense_is_refused(footer: bytes) -> None:
    try:
        parse_footer(footer)
    except ParquetError:
        return


@given(st.data())
def test_damage_is_refused_or_makes_no_difference_to_what_is_read(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(FOOTER) - 1))
    damaged = FOOTER[:place] + bytes([data.draw(st.integers(0, 255))]) + FOOTER[place + 1 :]
    try:
        groups = parse_footer(damaged[: data.draw(st.integers(0, len(FOOTER)))])
    except ParquetError:
        return
    assert all(plain >= 0 and compressed >= 0 for plain, compressed in groups)


def test_structures_in_structures_have_an_end() -> None:
    with pytest.raises(ParquetError):
        parse_footer(b"\x1c" * 100_000)
