"""What an application must not leave behind."""

from __future__ import annotations

from tests.jobs.job import Job
from tests.jobs.places import Place
from tests.waiting import settled


def assert_nothing_left(place: Place, job: Job) -> None:
    """No process, no folder of a container, no staging, no unreadable file. Nodes may take some time to clean up."""
    left = settled(job.processes)
    assert left == [], left
    assert settled(lambda: place.work_folders(job.id)) == []
    assert not job.has_staging()
    assert settled(job.unreadable_files) == []
