"""Amounts as people and templates write them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.common.quantities import ResourceAmount
from tony_provider.runtime.jobspec.units import (
    MAX_DURATION,
    MAX_INTEGER,
    UnitError,
    parse_boolean,
    parse_duration,
    parse_integer,
    parse_memory,
    parse_moment,
    parse_resource_amount,
    parse_tolerance,
)


@pytest.mark.parametrize(
    ("written", "mebibytes"),
    [
        (512, 512),
        (512.0, 512),
        ("512", 512),
        (" 512 ", 512),
        ("512MiB", 512),
        ("512 MiB", 512),
        ("512m", 512),
        ("4GiB", 4096),
        ("4gib", 4096),
        ("4g", 4096),
        ("4G", 4096),
        ("4Gi", 4096),
        ("1.5GiB", 1536),
        ("1TiB", 1024**2),
        ("2048KiB", 2),
        (MAX_INTEGER, MAX_INTEGER),
    ],
)
def test_memory(written: object, mebibytes: int) -> None:
    assert parse_memory(written) == mebibytes
    assert isinstance(parse_memory(written), int)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (0, "more than zero"),
        ("0GiB", "more than zero"),
        (-1, "more than zero"),
        ("-1GiB", "more than zero"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        ("nan", "not an amount"),
        (True, "not memory"),
        (None, "not memory"),
        ([4], "not memory"),
        ("", "not an amount"),
        ("GiB", "not an amount"),
        ("four", "not an amount"),
        ("4 apples", "not a unit"),
        ("4GB", "write 4GiB"),
        ("4mb", "write 4MiB"),
        ("1KiB", "whole number of MiB"),
        (1.5, "whole number of MiB"),
        (MAX_INTEGER + 1, "at most"),
        ("4096TiB", "at most"),
        ("9" * 5000, "not an amount"),
        pytest.param(10**5000, "at most", id="huge"),
        ("1_000", "not an amount"),
        ("1e3", "not an amount"),
    ],
)
def test_memory_refused(written: object, says: str) -> None:
    with pytest.raises(UnitError, match=says):
        parse_memory(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90", 90),
        ("90s", 90),
        ("1.5s", 1.5),
        ("15m", 900),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("1d 2h 3m 4s", 93784),
        (" 2h ", 7200),
        (0, 0),
        ("0s", 0),
        (timedelta(hours=6), 21600),
        (timedelta(milliseconds=1500), 1.5),
        (MAX_DURATION, MAX_DURATION),
    ],
)
def test_duration(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds
    assert isinstance(parse_duration(written), float)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (-1, "negative"),
        ("-5m", "negative"),
        (timedelta(seconds=-1), "negative"),
        (float("nan"), "finite"),
        ("inf", "not a time"),
        (float("-inf"), "finite"),
        (False, "not a time"),
        (None, "not a time"),
        ({}, "not a time"),
        ("", "not a time"),
        ("m", "not a time"),
        ("30m1h", "not a time"),
        ("1h1h", "not a time"),
        ("500ms", "not a time"),
        ("5 minutes", "not a time"),
        ("1..5s", "not a time"),
        (".s", "not a time"),
        ("3651d", "at most 3650d"),
        pytest.param(10**5000, "at most 3650d", id="huge"),
        ("9" * 5000, "not a time"),
    ],
)
def test_duration_refused(written: object, says: str) -> None:
    with pytest.raises(UnitError, match=says):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "number"), [(2, 2), ("2", 2), (" 2 ", 2), ("+2", 2), ("-2", -2), (2.0, 2), ("2.0", 2), ("010", 10)]
)
def test_integer(written: object, number: int) -> None:
    assert parse_integer(written) == number
    assert isinstance(parse_integer(written), int)


@pytest.mark.parametrize(
    "written", [True, None, "", "two", "2.5", 2.5, "1e3", "0x10", "1_000", [2], float("nan"), float("inf"), 2**31, "٢"]
)
def test_integer_refused(written: object) -> None:
    with pytest.raises(UnitError):
        parse_integer(written)


@pytest.mark.parametrize(
    ("written", "truth"), [(True, True), (False, False), ("true", True), ("False", False), (" TRUE ", True)]
)
def test_boolean(written: object, truth: bool) -> None:
    assert parse_boolean(written) is truth


@pytest.mark.parametrize("written", ["yes", "on", "1", 1, 0, "", None, []])
def test_boolean_refused(written: object) -> None:
    with pytest.raises(UnitError, match="true or false"):
        parse_boolean(written)


@pytest.mark.parametrize(
    "written",
    [
        "1970-01-02T00:00:00Z",
        "1970-01-02T01:00+01:00",
        " 1970-01-02 00:00:00+00:00 ",
        datetime(1970, 1, 2, tzinfo=UTC),
        86400,
        "86400",
    ],
)
def test_moment(written: object) -> None:
    assert parse_moment(written) == 86400.0


@pytest.mark.parametrize("written", ["1970-01-02", "1970-01-02T00:00:00", datetime(1970, 1, 2)])
def test_moment_without_its_time_zone(written: object) -> None:
    with pytest.raises(UnitError, match="needs its time zone"):
        parse_moment(written)


@pytest.mark.parametrize("written", ["soon", "", None, True, [], float("inf")])
def test_moment_refused(written: object) -> None:
    with pytest.raises(UnitError, match="with its time zone"):
        parse_moment(written)


@pytest.mark.parametrize(("written", "tolerance"), [(3, "3"), ("3", "3"), ("5%", "5%"), (" 0.5 % ", "0.5%"), (0, "0")])
def test_tolerance(written: object, tolerance: str) -> None:
    assert parse_tolerance(written) == tolerance


@given(
    st.sampled_from(
        [
            parse_memory,
            parse_duration,
            parse_integer,
            parse_boolean,
            parse_moment,
            parse_tolerance,
            parse_resource_amount,
        ]
    ),
    st.one_of(
        st.text(),
        st.text("0123456789.dhmskgtiKMGTB +-e%", max_size=12),
        st.integers(),
        st.floats(),
        st.booleans(),
        st.none(),
        st.lists(st.integers()),
        st.timedeltas(),
        st.datetimes(timezones=st.none() | st.timezones()),
    ),
)
def test_nothing_but_unit_error_is_raised(parse: Callable[[object], Any], written: object) -> None:
    try:
        value = parse(written)
    except UnitError:
        return
    assert parse(value) == value


@given(st.integers(1, MAX_INTEGER // 1024))
def test_memory_units_agree(gibibytes: int) -> None:
    assert parse_memory(f"{gibibytes}GiB") == parse_memory(gibibytes * 1024) == parse_memory(f"{gibibytes * 1024}m")


@given(st.integers(0, 100), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    written = f"{days}d{hours}h{minutes}m{seconds}s"
    assert parse_duration(written) == timedelta(days, seconds, 0, 0, minutes, hours).total_seconds()


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        (3, ResourceAmount(3)),
        (" 3 ", ResourceAmount(3)),
        ("3.0", ResourceAmount(3)),
        ("10Gi", ResourceAmount(10, "Gi")),
        ("10 Gi", ResourceAmount(10, "Gi")),
        ("500m", ResourceAmount(500, "m")),
        ("4Pi", ResourceAmount(4, "Pi")),
        (-1, ResourceAmount(-1)),  # for the validation to say
    ],
)
def test_amounts_of_resources(written: object, amount: ResourceAmount) -> None:
    assert parse_resource_amount(written) == amount
    assert parse_resource_amount(amount.plain) == amount


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("10GiB", "GiB is not a unit of YARN; write 10Gi"),
        ("10K", "K is not a unit of YARN; write 10k"),
        ("10MB", "MB is not a unit of YARN; write 10m or 10M"),
        ("10Q", "Q is not a unit of YARN; use one of p, n, u, m, k, M, G, T, P, Ki, Mi, Gi, Ti, Pi"),
        ("1.5Gi", "must be a whole number, or one with a unit of YARN, such as 10Gi"),
        ("-1Gi", "must be a whole number, or one"),
        ("Gi", "must be a whole number, or one"),
        (None, "write a whole number, or one with a unit"),
        (True, "write a whole number, or one with a unit"),
        ("9000Pi", r"less than 2\*\*63"),
        ("9999999999Ki", "at most 2147483647"),
    ],
)
def test_what_is_no_amount_of_a_resource(written: object, message: str) -> None:
    with pytest.raises(UnitError, match=message):
        parse_resource_amount(written)


def test_amounts_in_a_clusters_units() -> None:
    assert ResourceAmount(10).counted_in("Gi") == 10, "a plain number is in these already"
    assert ResourceAmount(10, "Gi").counted_in("Mi") == 10240
    assert ResourceAmount(1500, "Mi").counted_in("Gi") == 2
    assert ResourceAmount(2, "k").counted_in("") == 2000
    assert ResourceAmount(2, "G").counted_in("Gi") == 2
    assert ResourceAmount(2048, "Mi").is_whole_in("Gi")
    assert not ResourceAmount(2, "G").is_whole_in("Gi")
