"""A curve as a small picture beside its number: inline SVG, in the colours of the text around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Callable, Optional

from tony_provider.runtime.am.web.page.curves import CoarseCurve
from tony_provider.runtime.am.web.page.html import Html, element, join
from tony_provider.runtime.quantities import span

_HEIGHT, _MARGIN = 16, 1.5  # of the picture's own units; across, one is a point of the curve


def sparkline(curve: Optional[CoarseCurve], name: str, write: Callable[[float], str]) -> Optional[Html]:
    """The picture, with what it shows in words; None where there are not two points to draw a line between.

    ``write`` is how a number of this kind is written. Its lower edge is the smallest number of the curve, and not 0.
    """
    if curve is None or len(curve.known) < 2:
        return None
    known = curve.known
    low, high = min(known), max(known)
    words = f"{name} over {span(curve.span)}: {write(low)} to {write(high)}, now {write(curve.newest)}"
    lines = [element("polyline", points=" ".join(line)) for line in _lines(curve.points, low, high)]
    width = max(1, len(curve.points) - 1)
    picture = {"viewBox": f"0 0 {width} {_HEIGHT}", "preserveAspectRatio": "none", "role": "img"}
    return element("svg", element("title", words), join(*lines), class_="spark", aria_label=words, **picture)


def _lines(points: Sequence[float], low: float, high: float) -> list[list[str]]:
    """Lines through the points that are known, with gaps where none is."""
    lines: list[list[str]] = [[]]
    for number, point in enumerate(points):
        if math.isnan(point):
            lines.append([])
        else:
            lines[-1].append(f"{number},{_down(point, low, high):.1f}")
    return [line if len(line) > 1 else [*line, *line] for line in lines if line]


def _down(point: float, low: float, high: float) -> float:
    """How far below the picture's upper edge."""
    height = _HEIGHT - 2 * _MARGIN
    if high == low:
        return _HEIGHT / 2
    half = high / 2 - low / 2  # of it, since the whole may be more than a number can be
    return _MARGIN + height * (1 - (point / 2 - low / 2) / half)
