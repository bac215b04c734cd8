"""Imports as tests make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tony_provider.importers.key_table import ImportedJob
from tony_provider.importers.read_job import imported_from
from tony_provider.runtime.parsing.parse import parse_job


def imported(*words: str, **more: Any) -> ImportedJob:
    """What is made of a file or a call; its job is valid."""
    found = imported_from(words, **more)
    parse_job(found.job)
    return found


def imported_text(folder: Path, name: str, text: str, **more: Any) -> ImportedJob:
    """What is made of a file with this text."""
    (folder / name).write_text(text)
    return imported(str(folder / name), **more)


def why(found: ImportedJob, key: str) -> str:
    """Why a key of theirs was left; empty: it was not."""
    return " ".join(each.why for each in found.left_out if each.key == key)


def xml(**properties: object) -> str:
    """A configuration of Hadoop's; in names ``__`` stands for a dot, and ``_`` for a hyphen."""
    lines = [
        f"<property><name>{name.replace('__', '.').replace('_', '-')}</name><value>{value}</value></property>"
        for name, value in properties.items()
    ]
    return "\n".join(["<?xml version='1.0'?>", "<configuration>", *lines, "</configuration>"])
