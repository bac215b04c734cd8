"""Hours of the week: read, and looked at by the clocks of a zone."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.cluster.lifetime import zone_offsets
from tony_provider.runtime.jobspec.opening_hours import DAYS, WEEK, Hours, Week, ZoneOffset, read_hours


@pytest.mark.parametrize(
    ("text", "days", "first", "last"),
    [
        ("22:00-06:00", range(7), 1320, 1800),
        ("Sat-Sun", [5, 6], 0, 1440),
        ("Mon-Fri 22:00-06:00", range(5), 1320, 1800),
        ("sat", [5], 0, 1440),
        ("Fri-Mon 00:00-24:00", [4, 5, 6, 0], 0, 1440),
        ("Mon,Wed,Fri-Sat 9:30-17:05", [0, 2, 4, 5], 570, 1025),
        ("23:00-00:00", range(7), 1380, 1440),
    ],
)
def test_hours_as_people_write_them(text: str, days: list[int], first: int, last: int) -> None:
    assert read_hours(text) == Hours(tuple((day * 1440 + first, day * 1440 + last) for day in days))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not hours of the week"),
        ("at night", "not hours of the week"),
        ("night", "'night' is not a day; the days are Mon, Tue, Wed, Thu, Fri, Sat, Sun"),
        ("Mon-", "'' is not a day"),
        ("Mon,,Tue", "'' is not a day"),
        ("Mon,Sat-Mon", "names Mon twice"),
        ("Mon-Fri 22-06", "not hours of the week"),
        ("22:00", "not hours; write days, hours or both"),
        ("22:00-22:00", "it never opens"),
        ("24:00-02:00", "from 00:00 to 24:00"),
        ("22:00-24:01", "from 00:00 to 24:00"),
        ("22:60-23:00", "from 00:00 to 24:00"),
        ("Mon Tue 22:00-23:00", "not hours of the week"),
        ("Mon," * 1000, "not hours of the week"),
        ("22:00-06:00 Mon", "not hours of the week"),
        ("Mon 9:30 - 17:05", "not hours"),
    ],
)
def test_what_are_none(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_hours(text)


@given(st.text(max_size=80) | st.from_regex(r"[MTWFS][a-z]{2}(-[MTWFS][a-z]{2})? [0-9]{2}:[0-9]{2}-[0-9]{2}:[0-9]{2}"))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    try:
        hours = read_hours(text)
    except ValueError:
        return
    assert all(0 <= start < WEEK and start < end <= start + 1440 for start, end in hours.spans)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_the_night_goes_on_into_the_next_day_and_the_next_week() -> None:
    week = Week([read_hours("Sun 22:00-06:00")], [])
    assert week.is_open(moment("2026-11-29T22:00:00+00:00"))  # a Sunday
    assert week.is_open(moment("2026-11-30T05:59:59+00:00"))
    assert not week.is_open(moment("2026-11-30T06:00:00+00:00"))
    assert not week.is_open(moment("2026-11-29T21:59:59+00:00"))


def test_when_it_opens_next() -> None:
    week = Week(map(read_hours, ["Mon-Fri 22:00-06:00", "Sat-Sun"]), [ZoneOffset(0.0, 3600)])
    now = moment("2026-11-25T12:00:00+01:00")  # a Wednesday
    opening = week.next_opening(now)
    assert opening == moment("2026-11-25T22:00:00+01:00")
    assert week.in_words(opening) == "Wed 22:00"
    assert week.next_opening(opening) == opening
    assert week.next_opening(moment("2026-11-28T12:00:00+01:00")) == moment("2026-11-28T12:00:00+01:00")


_zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])


def test_an_hour_that_the_clocks_repeat_opens_twice() -> None:
    week = Week([read_hours("Sun 02:15-02:45")], OFFSETS["Europe/Berlin"])
    assert week.next_opening(moment("2027-10-31T01:00:00+02:00")) == moment("2027-10-31T02:15:00+02:00")
    assert week.next_opening(moment("2027-10-31T02:50:00+02:00")) == moment("2027-10-31T02:15:00+01:00")
    assert week.next_opening(moment("2027-10-31T02:50:00+01:00")) == moment("2027-11-07T02:15:00+01:00")


@given(
    zone=_zones,
    seconds=st.integers(0, 9 * 365 * 86400),
    first=st.integers(0, 23),
    last=st.integers(0, 23),
    days=st.sampled_from(["", *DAYS, "Mon-Fri", "Sat-Mon"]),
)
def test_a_node_that_knows_no_zones_is_of_one_mind_with_one_that_does(
    zone: str, seconds: int, first: int, last: int, days: str
) -> None:
    if first == last:
        return
    text = f"{days} {first:02d}:00-{last:02d}:00".strip()
    now = BEGIN + seconds
    week = Week([read_hours(text)], OFFSETS[zone])
    local = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(zone))
    minute = local.weekday() * 1440 + local.hour * 60 + local.minute
    assert week.is_open(now) == read_hours(text).covers(minute)


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2027-03-27T20:00:00+01:00", "2027-03-29T22:00:00+02:00"),
        ("2027-10-30T20:00:00+02:00", "2027-11-01T22:00:00+01:00"),
    ],
)
def test_when_it_opens_after_the_clocks_were_changed(now: str, opens: str) -> None:
    week = Week([read_hours("Mon 22:00-06:00")], OFFSETS["Europe/Berlin"])
    opening = week.next_opening(moment(now))
    assert (opening, week.in_words(opening)) == (moment(opens), "Mon 22:00")


def test_an_hour_that_the_clocks_skip_is_none() -> None:
    week = Week([read_hours("02:15-02:45")], OFFSETS["Europe/Berlin"])
    assert week.next_opening(moment("2027-03-28T01:00:00+01:00")) == moment("2027-03-29T02:15:00+02:00")


@given(
    zone=_zones,
    seconds=st.integers(0, 9 * 365 * 86400) | st.floats(0, 9 * 365 * 86400),
    first=st.integers(0, 23),
    length=st.integers(1, 23),
    days=st.sampled_from(["", *DAYS, "Mon-Fri", "Sat-Mon"]),
)
def test_when_it_opens_next_it_is_open_and_was_not_before(
    zone: str, seconds: float, first: int, length: int, days: str
) -> None:
    week = Week([read_hours(f"{days} {first:02d}:00-{(first + length) % 24:02d}:00".strip())], OFFSETS[zone])
    now = BEGIN + seconds
    opening = week.next_opening(now)
    assert week.is_open(opening)
    assert opening == now or (opening > now and not week.is_open(opening - 1))


BEGIN = moment("2026-11-25T12:00:00+00:00")
OFFSETS = {
    zone: zone_offsets(zone, BEGIN)
    for zone in ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
}


def test_clocks_are_changed_to_the_minute() -> None:
    _, spring, *_ = OFFSETS["Europe/Berlin"]
    assert spring == ZoneOffset(moment("2027-03-28T01:00:00+00:00"), 7200)
    assert len(OFFSETS["Europe/Berlin"]) == 21
    assert OFFSETS["UTC"] == [ZoneOffset(BEGIN, 0)]
