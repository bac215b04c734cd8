"""A benchmark that fails."""

raise RuntimeError("it is said to fail")
