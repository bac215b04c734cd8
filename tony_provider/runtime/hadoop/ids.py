"""The ids of applications, attempts, containers and nodes: as the text that YARN writes, and as its messages.

The forms are those of Hadoop's ApplicationId, ApplicationAttemptId, ContainerId and NodeId (2.10 to 3.4).
"""

from __future__ import annotations

import re

import attrs

from tony_provider.runtime.address import Address
from tony_provider.runtime.hadoop.proto import yarn_pb2

_APPLICATION = re.compile(r"application_(\d{1,18})_(\d{1,9})", re.ASCII)
_ATTEMPT = re.compile(r"appattempt_(\d{1,18})_(\d{1,9})_(\d{1,9})", re.ASCII)
_CONTAINER = re.compile(r"container_(?:e(\d{1,7})_)?(\d{1,18})_(\d{1,9})_(\d{1,9})_(\d{1,12})", re.ASCII)

_EPOCH_SHIFT = 40
_NUMBER_MASK = (1 << _EPOCH_SHIFT) - 1


def _match(pattern: re.Pattern[str], text: str, what: str) -> list[int]:
    matched = pattern.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text!r} is not {what} id")
    return [int(group or 0) for group in matched.groups()]


@attrs.frozen(order=True)
class ApplicationId:
    """The id of an application, such as ``application_1700000000000_0001``."""

    cluster_timestamp: int  # when the ResourceManager began to count, milliseconds since 1970
    number: int

    @classmethod
    def parse(cls, text: str) -> ApplicationId:
        """The id that the text is. Raises ValueError."""
        return cls(*_match(_APPLICATION, text, "an application"))

    @classmethod
    def from_proto(cls, proto: yarn_pb2.ApplicationIdProto) -> ApplicationId:
        return cls(proto.cluster_timestamp, proto.id)

    def to_proto(self) -> yarn_pb2.ApplicationIdProto:
        return yarn_pb2.ApplicationIdProto(id=self.number, cluster_timestamp=self.cluster_timestamp)

    def __str__(self) -> str:
        return f"application_{self.cluster_timestamp}_{self.number:04d}"


def is_application_id(text: str) -> bool:
    """Whether a text has the form of an application's id, and so is no part of a path or of an address."""
    return _APPLICATION.fullmatch(text) is not None


@attrs.frozen(order=True)
class ApplicationAttemptId:
    """The id of an attempt, which is one application master of an application."""

    application: ApplicationId
    number: int  # from 1

    @classmethod
    def parse(cls, text: str) -> ApplicationAttemptId:
        """The id that the text is. Raises ValueError."""
        timestamp, application, attempt = _match(_ATTEMPT, text, "an application attempt")
        return cls(ApplicationId(timestamp, application), attempt)

    @classmethod
    def from_proto(cls, proto: yarn_pb2.ApplicationAttemptIdProto) -> ApplicationAttemptId:
        return cls(ApplicationId.from_proto(proto.application_id), proto.attemptId)

    def to_proto(self) -> yarn_pb2.ApplicationAttemptIdProto:
        return yarn_pb2.ApplicationAttemptIdProto(application_id=self.application.to_proto(), attemptId=self.number)

    def __str__(self) -> str:
        application = self.application
        return f"appattempt_{application.cluster_timestamp}_{application.number:04d}_{self.number:06d}"


@attrs.frozen(order=True)
class ContainerId:
    """The id of a container, with the attempt that it was allocated to; a later attempt may have adopted it."""

    attempt: ApplicationAttemptId
    number: int  # from 1, which is the application master's own
    epoch: int = 0  # how often the ResourceManager was restarted with its state

    @classmethod
    def parse(cls, text: str) -> ContainerId:
        """The id that the text is. Raises ValueError."""
        epoch, timestamp, application, attempt, number = _match(_CONTAINER, text, "a container")
        return cls(ApplicationAttemptId(ApplicationId(timestamp, application), attempt), number, epoch)

    @classmethod
    def from_proto(cls, proto: yarn_pb2.ContainerIdProto) -> ContainerId:
        attempt = ApplicationAttemptId.from_proto(proto.app_attempt_id)
        return cls(attempt, proto.id & _NUMBER_MASK, proto.id >> _EPOCH_SHIFT)

    def to_proto(self) -> yarn_pb2.ContainerIdProto:
        return yarn_pb2.ContainerIdProto(
            app_attempt_id=self.attempt.to_proto(), id=self.epoch << _EPOCH_SHIFT | self.number
        )

    def __str__(self) -> str:
        application = self.attempt.application
        epoch = f"e{self.epoch:02d}_" if self.epoch else ""
        return (
            f"container_{epoch}{application.cluster_timestamp}_{application.number:04d}"
            f"_{self.attempt.number:02d}_{self.number:06d}"
        )


def node_address(proto: yarn_pb2.NodeIdProto) -> Address:
    """The address of a NodeManager, which is its id."""
    return Address(proto.host, proto.port)
