"""What YARN says of an application, which anybody may have submitted, and called anything."""

from __future__ import annotations

from tony_provider.cluster.yarn.yarn_cluster import _application

ODD = "a\x1b]0;owned\x07\u202eb\x1b[2J\nc"


def test_its_name_its_page_and_its_diagnostics_hold_nothing_that_a_terminal_obeys() -> None:
    told = {"id": "application_1_0001", "state": "RUNNING", "name": ODD, "diagnostics": ODD}
    found = _application({**told, "trackingUrl": f"http://proxy/{ODD}"})
    assert (found.name, found.diagnostics, found.tracking_url) == ("ab c", "ab\nc", None)
