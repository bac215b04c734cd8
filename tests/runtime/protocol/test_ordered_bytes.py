"""Requests of a tunnel that are lost, repeated and overtaken: each byte arrives once, and in order."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.protocol.tunnel_streams import OutOfStepError, ReceivedBytes, SentBytes


@attrs.define
class Way:
    """One direction of a tunnel, with requests under way that may arrive at any time, more than once, or never."""

    sent: SentBytes = attrs.field(factory=SentBytes)
    taken: ReceivedBytes = attrs.field(factory=ReceivedBytes)
    said: bytes = b""
    arrived: bytes = b""
    under_way: list[tuple[int, bytes]] = attrs.field(factory=list)
    answers: list[int] = attrs.field(factory=list)

    def say(self, data: bytes) -> None:
        self.said += data
        self.sent.add(data)

    def send(self, most: int) -> None:
        self.under_way.append((self.sent.start, self.sent.after(self.sent.start, most)))

    def deliver(self, which: int) -> None:
        if self.under_way:
            self.arrived += self.taken.take(*self.under_way[which % len(self.under_way)])
            self.answers.append(self.taken.count)

    def answer(self, which: int) -> None:
        if self.answers:
            self.sent.arrived(self.answers[which % len(self.answers)])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.binary(max_size=20)),
        st.tuples(st.just("send"), st.integers(1, 9)),
        st.tuples(st.just("deliver"), st.integers(0, 99)),
        st.tuples(st.just("answer"), st.integers(0, 99)),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_byte_arrives_once_and_in_order(steps: list[tuple[str, object]]) -> None:
    way = Way()
    for name, argument in steps:
        getattr(way, name)(argument)
        assert way.said.startswith(way.arrived)
        assert way.sent.start <= way.taken.count <= way.sent.end
    while way.sent.held:  # from here on nothing is lost
        way.send(7)
        way.deliver(-1)
        way.answer(-1)
    assert way.arrived == way.said
    assert way.sent.start == len(way.said)


def test_nothing_is_kept_that_has_arrived() -> None:
    sent = SentBytes()
    sent.add(b"abcdef")
    sent.arrived(4)
    assert (sent.held, sent.after(4, 9), sent.after(2, 9)) == (2, b"ef", b"")
    sent.arrived(2)  # an answer that was overtaken
    assert sent.held == 2
    with pytest.raises(OutOfStepError, match="reports 7 received bytes, but only 6 were sent"):
        sent.arrived(7)
