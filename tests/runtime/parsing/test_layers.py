"""Whose word each key of a job is."""

from __future__ import annotations

from tony_provider.runtime.parsing.parse import Layer, Layers

LAYERS = Layers(
    [
        Layer("preset small", {"queue": "ml", "tags": ["a"], "tasks": {"worker": {"memory": "1GiB", "vcores": 2}}}),
        Layer("the job", {"tags": ["b"], "inputs": {"clicks": "/data"}, "tasks": {"worker": {"memory": "2GiB"}}}),
        Layer("overrides", {"queue": None, "tasks": {"worker": {"vcores": 4}}}),
    ]
)


def test_the_one_above_wins_key_by_key() -> None:
    assert LAYERS.merged() == {
        "tags": ["b"],
        "inputs": {"clicks": "/data"},
        "tasks": {"worker": {"memory": "2GiB", "vcores": 4}},
    }


def test_whose_word_a_key_is() -> None:
    def origin(path: str) -> str:
        return LAYERS.origin(path.split("."))

    assert origin("tasks.worker.memory") == "the job"
    assert origin("tasks.worker.vcores") == "overrides"
    assert origin("tags") == "the job"
    assert origin("inputs.clicks.deal") == "the job"  # written as a path: all that is below it is part of that
    assert origin("queue") == "default"  # deleted
    assert origin("tasks.worker.gpus") == "default"
    assert Layers(LAYERS.lowest_first[:1]).origin(["queue"]) == "preset small"
