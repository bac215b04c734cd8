"""A notifier that sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow.providers.common.compat.sdk import BaseNotifier

from tony_provider.notifications.message import TrainingMessage


class RecordingNotifier(BaseNotifier):
    """Keeps what it was to tell, and with which news."""

    template_fields: Sequence[str] = ("text",)
    everything: ClassVar[list[str]] = []  # that any of them was to tell, oldest first

    def __init__(self, text: str = "{{ tony.title }}", **more: Any) -> None:
        super().__init__(**more)
        self.text = text
        self.told: list[str] = []
        self.news: list[TrainingMessage] = []

    def notify(self, context: Any) -> None:
        self.told.append(self.text)
        self.everything.append(self.text)
        self.news.append(context["tony"])
