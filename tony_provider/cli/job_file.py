"""The job file that a command was given, with what the command line lays over it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tony_provider.exceptions import TonySpecError
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.submission import job_of, layers_of
from tony_provider.runtime.parsing.layers import Layers
from tony_provider.runtime.parsing.overrides import EVERYTHING
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.source import load_source

_ENDINGS = (".tony.yaml", ".tony.yml", ".tony.json", ".yaml", ".yml", ".json")
_TEMPLATE = ("{{", "{%")


def read_job(args: Namespace, hook: TonyHook) -> tuple[JobSpec, Layers]:
    """The job of the file that the command line names, with its options laid over it; and what it is made of.

    Raises TonySpecError with every problem, and for a file that cannot be read.
    """
    path = Path(args.job)
    text = _text(path)
    try:
        layers = layers_of(
            text,
            default_name=_name(path),
            name=getattr(args, "name", None),
            queue=args.queue,
            env=None,
            secrets=getattr(args, "secret", None) or [],
            queue_timeout=None,
            overrides=_overrides(args.set or []),
            allowed_overrides=EVERYTHING,  # who types them may write the file as well
            presets=lambda: hook.settings.presets,
        )
        return job_of(layers), layers
    except TonySpecError as error:
        raise TonySpecError(f"{path}: {error}") from error


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TonySpecError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if any(mark in text for mark in _TEMPLATE):
        raise TonySpecError(
            f"{path} holds a template, which only a DAG renders; write its value, or lay it over with --set"
        )
    return text


def written(args: Namespace) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The job's file as it is, and what is laid over it; ``read_job`` has found nothing wrong with them."""
    text = Path(args.job).read_text(encoding="utf-8")
    return load_source(text), _overrides(args.set or [])


def search_path(args: Namespace) -> list[Path]:
    """The directories in which files that the job names are looked for: the one of the job's file."""
    return [Path(args.job).absolute().parent]


def _name(path: Path) -> str:
    return next((path.name.removesuffix(end) for end in _ENDINGS if path.name.endswith(end)), path.name)


def _overrides(given: Sequence[str]) -> dict[str, Any]:
    """Of ``tasks.worker.instances=4``; values are read as those of the file are, all of them text."""
    overrides: dict[str, Any] = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not separator or not all(key.split(".")):
            raise TonySpecError(f"--set: {each!r} should be key=value, such as tasks.worker.instances=4")
        *above, last = key.split(".")
        place = overrides
        for name in above:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise TonySpecError(f"--set: {key!r} is below a key that is given a value itself")
        if isinstance(place.get(last), dict):
            raise TonySpecError(f"--set: {key!r} is given a value itself, and so is a key below it")
        place[last] = value
    return overrides
