"""Prints what breaks a rule of the house: ``python -m tests.structure``."""

from __future__ import annotations

import sys

from tests.structure.checks import CHECKS

found = [line for check in CHECKS for line in check()]
print("\n".join(found) or "every rule holds")
sys.exit(1 if found else 0)
