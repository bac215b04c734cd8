"""The Python environment of the rows: each library from the default registry, pinned, made once for this machine."""

from __future__ import annotations

from pathlib import Path

from tests.kinds.environments import install, make_environment

PINS = Path(__file__).with_name("pins.txt")


def environment() -> Path:
    """Return the environment, and make it first if necessary: 6 GB. Raises subprocess.CalledProcessError."""
    pins = PINS.read_text().splitlines()
    return make_environment(pins, lambda folder: install(folder, "--compile-bytecode", "--no-deps", *pins))
