"""An amount of one of a cluster's resources, in a unit of YARN's or in the resource's own."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Union

import attrs

# As in YARN's UnitsConversionUtil: prefixes, whatever it is that is counted.
UNITS: dict[str, Fraction] = {
    **{unit: Fraction(1, 1000**power) for power, unit in ((4, "p"), (3, "n"), (2, "u"), (1, "m"))},
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
}


@attrs.frozen
class ResourceAmount:
    """How much of a resource. Written as ``10Gi``, or a plain number in the unit that the cluster counts it in."""

    value: int
    units: str = ""  # one of UNITS; empty: the resource's own, whichever that is

    def counted_in(self, units: str) -> int:
        """The number in these units of the resource's own, rounded up to a whole one."""
        return math.ceil(self._exactly(units))

    def is_whole_in(self, units: str) -> bool:
        """Whether the cluster, counting in these units, would give it without losing a part: YARN rounds down."""
        return self._exactly(units).denominator == 1

    def _exactly(self, units: str) -> Fraction:
        return self.value * UNITS[self.units] / UNITS[units] if self.units else Fraction(self.value)

    @property
    def plain(self) -> Union[int, str]:
        """As it is written in a job."""
        return f"{self.value}{self.units}" if self.units else self.value

    def __str__(self) -> str:
        return str(self.plain)
