"""What people see of a job's specification: secrets are masked wherever they stand."""

from __future__ import annotations

from tony_provider.cluster.records.history import mask_values
from tony_provider.hooks.connection import mask_of


def test_secrets_are_masked_wherever_they_stand() -> None:
    job = {
        "inputs": {"clicks": {"path": "s3://me:open-sesame@bucket/clicks", "tasks": ["worker"]}},
        "files": ["https://example.com/?key=open-sesame"],
        "secrets": ["API_TOKEN"],
        "env": {"DB_PASSWORD": "anything", "EMPTY": None},
        "tasks": {"worker": {"command": "train --key open-sesame", "vcores": 1}},
    }
    assert mask_values(job, mask_of({"KEY": "open-sesame"})) == {
        "inputs": {"clicks": {"path": "s3://me:***@bucket/clicks", "tasks": ["worker"]}},
        "files": ["https://example.com/?key=***"],
        "secrets": ["API_TOKEN"],
        "env": {"DB_PASSWORD": "***", "EMPTY": ""},
        "tasks": {"worker": {"command": "train --key ***", "vcores": 1}},
    }
