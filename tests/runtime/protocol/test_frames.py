"""Frames of a tunnel: whatever the pieces are that they come in, and whatever else comes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.limits import TUNNEL_WINDOW
from tony_provider.runtime.protocol.tunnel_streams import FrameError, FrameReader, Window, pack_frames


@given(st.lists(st.lists(st.binary(max_size=300), max_size=4), max_size=8), st.integers(1, 50))
def test_frames_come_out_as_they_went_in(batches: list[list[bytes]], size: int) -> None:
    frames = [[tony_pb2.TunnelFrame(stream=7, data=each) for each in batch] for batch in batches]
    whole = b"".join(map(pack_frames, frames))
    reader = FrameReader()
    found = [each for at in range(0, len(whole), size) for each in reader.take(whole[at : at + size])]
    assert found == [each for batch in frames for each in batch]


@given(st.binary(max_size=200))
def test_anything_else_is_refused_or_waited_for(data: bytes) -> None:
    with suppress(FrameError):
        list(FrameReader().take(data))


def test_a_batch_without_end_is_refused_before_it_has_come() -> None:
    with pytest.raises(FrameError, match="more than"):
        list(FrameReader().take(b"\xff\xff\xff\xff"))


def test_a_window_is_held_to() -> None:
    window = Window()
    window.spend(TUNNEL_WINDOW)
    with pytest.raises(FrameError, match="1 bytes were sent, but only 0 are permitted"):
        window.spend(1)
    window.grant(5)
    with pytest.raises(FrameError, match="never sent"):
        window.grant(TUNNEL_WINDOW)
