"""Files of sample segments, as the application master writes them."""

from __future__ import annotations

from collections.abc import Iterable

from tony_provider.runtime.application_history import (
    SampleCompressor,
    SampleSegmentHeader,
    TaskSample,
    encode_header,
    encode_sample,
)


def encode_segment(header: SampleSegmentHeader, samples: Iterable[TaskSample]) -> bytes:
    """Return the content of a segment's file with these samples."""
    compressor = SampleCompressor()
    for sample in samples:
        compressor.add(encode_sample(sample))
    return encode_header(header) + compressor.finish()
