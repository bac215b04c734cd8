"""scikit-learn."""

from __future__ import annotations

from tests.libraries.row import Row, add

add(
    Row(
        "sklearn-joblib",
        "sklearn",
        "scikit-learn partial_fit; one joblib file, overwritten",
        "sklearn_partial_fit",
        ("scikit-learn", "joblib"),
        framework="standalone",
        instances=1,
    )
)
