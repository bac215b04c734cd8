"""alice's tags, which anybody can work out, on applications of somebody else's."""

from __future__ import annotations

from tests.secure.field import Field
from tests.secure.row import row
from tony_provider.cluster.submission.preparation import SubmissionRequest
from tony_provider.runtime.jobspec.model import JobSpec
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import FinalStatus, JobState


@row("squatted-tag", "run an application with the tag of alice's training, while she submits her next try")
def squatted_tag(field: Field) -> str:
    victim = field.victim(own=True)
    identity, hook = victim.job.identity, victim.job.hook
    with field.acting_as("bob") as place:
        bobs = place.hook()
        squatter = bobs.submit(SubmissionRequest(_job("sleep 600"), identity)).application_id
        field.at_end(lambda: _end(field, squatter))
        tags = [identity.tag in (bobs.application(squatter) or victim.job.application()).tags]
    field.expect(tags == [True], "bob's application has not got her tag")
    found = [each.id for each in hook.find(identity)]
    field.expect(found == [victim.id], f"her training's applications are said to be {found}")
    field.problems += victim.finish()
    again = hook.submit(SubmissionRequest(_job("true"), identity)).application_id
    status = victim.until(
        lambda: status if (status := hook.job_status(identity, again)) and status.state.is_final else None,
        "the end of her next try",
    )
    field.expect(status.state is JobState.SUCCEEDED, f"her next try ended {status.state.value}")
    with field.acting_as("bob") as place:
        his = place.hook().application(squatter)
        field.expect(his is not None and not his.is_final, "bob's own application was ended by hers")
    return "her applications are told from his by their directory; her next try ran and SUCCEEDED, his was left alone"


def _job(command: str) -> JobSpec:
    tasks = {"worker": {"memory": "128MiB", "command": command}}
    return parse_job({"framework": "standalone", "am": {"memory": "256MiB"}, "tasks": tasks})


def _end(field: Field, application_id: str) -> None:
    with field.acting_as("bob") as place:
        hook = place.hook()
        application = hook.application(application_id)
        if application is not None and not application.is_final:
            hook.kill(application_id, "its row is over")
            victim = field.victims[-1]
            victim.until(lambda: (hook.application(application_id) or application).is_final, "the squatter's end")
            assert (hook.application(application_id) or application).final_status is not FinalStatus.SUCCEEDED
