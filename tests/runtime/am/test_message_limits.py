"""What a message of an executor may hold."""

from __future__ import annotations

from tony_provider.runtime.am.executor_messages import heartbeat
from tony_provider.runtime.am.message_limits import AcceptedMessage, MessageTrimmer, parse_message
from tony_provider.runtime.protocol import limits, tony_pb2


def test_notices_are_few_short_lines() -> None:
    notices = ["two\nlines", "x" * 100_000, *["more"] * 1000]
    for message in (
        tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(notices=notices)),
        tony_pb2.FromExecutor(settled=tony_pb2.Settled(notices=notices)),
    ):
        taken = parse_message(message.SerializeToString())
        assert isinstance(taken, AcceptedMessage)
        cutter = MessageTrimmer()
        cutter.fit(taken)
        found = list((taken.message.heartbeat if taken.kind == "heartbeat" else taken.message.settled).notices)
        assert len(found) == limits.MOST_NOTICES
        assert [len(each) for each in found[:2]] == [len("two lines"), limits.LONGEST_LABEL]
        assert all(each.isprintable() for each in found)
        assert cutter.cut == {"notices"}


def test_stacks_are_few_short_lines() -> None:
    process = tony_pb2.ProcessStack(pid=1, command="x" * 5000, process="a\nb", frames=["in\x1b[1m f", *["more"] * 1000])
    message = tony_pb2.FromExecutor(stacks=tony_pb2.Stacks(start=1, processes=[process] * 50))
    taken = parse_message(message.SerializeToString())
    assert isinstance(taken, AcceptedMessage)
    cutter = MessageTrimmer()
    cutter.fit(taken)
    assert len(taken.message.stacks.processes) == limits.MOST_STACKS
    [first, *_] = taken.message.stacks.processes
    assert (len(first.command), first.process, len(first.frames)) == (limits.LONGEST_LABEL, "a b", limits.MOST_FRAMES)
    assert first.frames[0].isprintable()
    assert cutter.cut == {"processes", "command", "frames"}


def test_every_text_about_the_end_of_a_process_has_a_limit() -> None:
    texts = {field.name for field in tony_pb2.ProcessExited.DESCRIPTOR.fields if field.type == field.TYPE_STRING}
    message = tony_pb2.FromExecutor()
    for name in texts:
        setattr(message.exited, name, "a\x07" * 20_000)
    taken = parse_message(message.SerializeToString())
    assert isinstance(taken, AcceptedMessage)
    cutter = MessageTrimmer()
    cutter.fit(taken)
    assert cutter.cut == texts
    for name in texts:
        assert len(getattr(taken.message.exited, name)) <= limits.FIELD_LIMITS["ProcessExited"][name]
        assert getattr(taken.message.exited, name).isprintable()


def test_parameters_are_few_short_lines() -> None:
    parameters = {"a": "two\nlines", "b": "x" * 251, "c\nd": "1", **{f"p{number:03}": "1" for number in range(1000)}}
    message = tony_pb2.FromExecutor(heartbeat=tony_pb2.Heartbeat(parameters=parameters))
    taken = parse_message(message.SerializeToString())
    assert isinstance(taken, AcceptedMessage)
    cutter = MessageTrimmer()
    cutter.fit(taken)
    assert cutter.cut == {"parameters"}
    found = heartbeat(taken.message.heartbeat).parameters
    assert found == {"a": "two lines", **{f"p{number:03}": "1" for number in range(limits.MOST_PARAMETERS - 2)}}
