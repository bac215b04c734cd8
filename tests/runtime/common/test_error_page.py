"""Pages that a web server answers with, among them those of a job's own master."""

from __future__ import annotations

import pytest

from tony_provider.runtime.common.network import page_title


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (b"<html><TITLE>Error 403 no</Title><body>long", "Error 403 no"),
        (b"<title>\nnot\xff you</title>", "\nnot\N{REPLACEMENT CHARACTER} you"),
        (b"<title>cut", "<title>cut"),
        (b"</title><title>", "</title><title>"),
        (b"no page", "no page"),
        (b"", ""),
    ],
)
def test_a_page_says_what_its_title_says(page: bytes, said: str) -> None:
    assert page_title(page) == said


def test_a_page_of_titles_without_an_end_is_not_looked_through_for_each() -> None:
    # A pattern took 44 s for 128 KiB of these, and more than a lifetime for as much as a master may answer; meanwhile
    # nothing else of the process ran.
    assert len(page_title(b"<title>" * (32 << 20 >> 3))) == 16 << 10
