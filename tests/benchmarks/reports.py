"""Reports as benchmarks make them."""

from __future__ import annotations

from hypothesis import strategies as st

from benchmarks.machine import Machine
from benchmarks.report import OURS, Aim, Better, Figure, Ratio, Report, Run, Size

MACHINE = Machine(2, "a processor", 16, "6.1")
positive = st.floats(1e-3, 1e6)
words = st.text("abc, 1:", min_size=1, max_size=12)
names = st.sampled_from(["launch", "scale", "mirror"])


def rounds(least: int = 1) -> st.SearchStrategy[list[float]]:
    """What one run has measured."""
    return st.lists(positive, min_size=least, max_size=12)


figures = st.builds(
    Figure,
    what=words,
    who=st.sampled_from([OURS, "skein", "floor"]),
    unit=st.sampled_from(["s", "MiB"]),
    values=rounds(),
    size=st.none() | st.builds(Size, value=st.integers(1, 10_000), of=st.sampled_from(["tasks", "files"])),
)
aims = st.none() | st.builds(Aim, value=positive, better=st.sampled_from(Better))
ratios = st.builds(Ratio, what=words, of=st.sampled_from(["", "skein"]), values=rounds(), aim=aims)
reports = st.builds(Report, name=names, title=words, figures=st.lists(figures), ratios=st.lists(ratios))


def small(name: str = "launch", first: float = 1.0) -> Report:
    """Of two sizes, ours beside another."""
    made = [
        Figure("first", who, "s", [value * tasks, value * tasks * 1.1], Size(tasks, "tasks"))
        for who, value in ((OURS, first), ("skein", 2.0))
        for tasks in (1, 2)
    ]
    aimed = [Ratio.between(made[1], made[3], Aim(0.6)), Ratio.alone(made[1], Aim(3.0))]
    return Report(name, "Small jobs", made, aimed)


def run(report: Report, machine: Machine = MACHINE) -> Run:
    return Run("2026-11-25", machine, report)
