"""User processes that die, in containers that live."""

from __future__ import annotations

from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import COUNT, SERVED, row
from tests.faults.training import Training
from tests.faults.tries import Tries
from tests.jobs.places import USER

HIT_AT = 25  # the step after which most faults hit: midway between two checkpoints
SERVED_MEMORY = "1500MiB"
SERVERS = {"FAULTS_SERVERS": "ps,worker,evaluator"}  # in a parameter-server job these never end by themselves


@row("undisturbed", "none")
def undisturbed(field: Field) -> Account:
    """Nothing: the training as it should be, with which the others are compared."""
    account = field.train().finish()
    account.lost = None
    return account


@row("watched", "none, but page, output and log are read", COUNT)
def watched(field: Field) -> Account:
    """What people look at while it runs, through YARN's proxy, and afterwards."""
    worker = {"instances": 2, "memory": "128MiB", "command": "echo begun; exec python count.py"}
    training = field.train(pace=0.5, tasks={"worker": worker})
    training.until_step(5)
    job = training.job
    address = str(job.application().tracking_url)
    page = field.hadoop.client(USER).request("GET", address, headers={"Accept": "text/html"}).decode()
    output = job.handle.output("worker:1", None, 0).data.decode()
    training.hurry()
    account = training.finish()
    account.lost = None
    account.expect(all(f">{task}<" in page for task in training.gang), f"the page at {address}: {page[:500]}")
    account.expect("begun\n" in output, f"the output while it ran: {output!r}")
    account.expect("begun\n" in job.log("worker:1"), f"the log at the end: {job.log('worker:1')!r}")
    return account


def _die(field: Field, task: str, *, by_exit: bool) -> Account:
    """Two workers of one gang: both start again, in the containers that they have."""
    return _hit(field.train(), task, by_exit=by_exit)


def _die_in_a_role(field: Field, task: str, *, by_exit: bool) -> Account:
    """Chief, parameter server, worker and evaluator; the chief trains, the others serve until they are stopped."""
    quick = {"memory": "128MiB", "command": "exec python count.py"}
    training = field.train(environment=SERVERS, tasks=dict.fromkeys(["chief", "ps", "worker", "evaluator"], quick))
    training.leader = "chief:0"
    training.gang = ("evaluator:0",) if task == "evaluator:0" else ("chief:0", "ps:0", "worker:0")
    return _hit(training, task, by_exit=by_exit)


@row("ps-tensorflow-killed", "ps of a TensorFlow job: user process kill -9", SERVED)
def served_killed(field: Field) -> Account:
    """SIGKILL to the parameter server of a training with ParameterServerStrategy."""
    each = {"memory": SERVED_MEMORY, "command": "exec python served.py"}
    training = field.train(tasks=dict.fromkeys(["chief", "ps", "worker"], each))
    training.leader, training.gang = "chief:0", ("chief:0", "ps:0", "worker:0")
    return _hit(training, "ps:0", by_exit=False)


@row("same-failure", "a typo: the same failure twice", COUNT)
def same_failure(field: Field) -> Account:
    """It is tried once more, and then is the job's: the error says so, and ends with the program's own words."""
    typo = field.folder / "typo.py"
    typo.write_text("import sys, time\nprint(time.time(), file=sys.stderr)\nmodel = lodel()\n")
    tries = Tries(field)
    worker = {"instances": 2, "memory": "128MiB", "command": "exec python typo.py"}
    told = tries.begin(tries.job(files=[str(typo)], tasks={"worker": worker})).result()
    account = Account()
    account.expect(told["state"] == "failed", f"the task: {told}")
    account.expect("the same failure 2 times" in told["error"], f"the error does not say so: {told['error']}")
    account.expect("NameError: name 'lodel' is not defined" in told["error"], told["error"])
    said = tries.begun[-1].said()
    account.expect("RESTARTING (restart 1)" in said or "restart 1" in said, "it was not tried once more")
    account.expect("restart 2" not in said, "it was tried more than once more")
    account.did = told["error"].splitlines()[0]
    return account


def _hit(training: Training, task: str, *, by_exit: bool) -> Account:
    training.until_step(HIT_AT)
    before = {task: training.user_process(task) for task in training.tasks}
    executors = {task: training.executor(task) for task in training.tasks}
    if by_exit:
        training.diary.order(task, "exit", "1")
        ordered = training.diary.until_obeyed(task)
        training.hits.append(ordered.at)
    else:
        with training.hit():
            training.kill(task)
    # On a busy machine those that are to be stopped go on for a while.
    again_at = max(training.until_started(name, after=training.hits[0]).at for name in training.gang)
    training.until_step(HIT_AT + 10, after=again_at)
    for name in training.tasks:
        again = training.user_process(name) != before[name]
        wanted = name in training.gang
        training.expect(again is wanted, f"{name}'s process " + ("started again" if again else "did not start again"))
        training.expect(training.executor(name) == executors[name], f"{name} has another executor")
    return training.finish()


@row("leader-killed", "rank 0: user process kill -9")
def leader_killed(field: Field) -> Account:
    """SIGKILL to the user process of rank 0, which writes the checkpoints."""
    return _die(field, "worker:0", by_exit=False)


@row("leader-exits", "rank 0: user process exit 1")
def leader_exits(field: Field) -> Account:
    """The user process of rank 0 gives up by itself."""
    return _die(field, "worker:0", by_exit=True)


@row("rank1-killed", "rank 1: user process kill -9")
def rank1_killed(field: Field) -> Account:
    """SIGKILL to the user process of rank 1."""
    return _die(field, "worker:1", by_exit=False)


@row("rank1-exits", "rank 1: user process exit 1")
def rank1_exits(field: Field) -> Account:
    """The user process of rank 1 gives up by itself."""
    return _die(field, "worker:1", by_exit=True)


@row("chief-killed", "chief of a ps job: user process kill -9", COUNT)
def chief_killed(field: Field) -> Account:
    """SIGKILL to the chief that parameter servers serve."""
    return _die_in_a_role(field, "chief:0", by_exit=False)


@row("chief-exits", "chief of a ps job: user process exit 1", COUNT)
def chief_exits(field: Field) -> Account:
    """The chief that parameter servers serve gives up by itself."""
    return _die_in_a_role(field, "chief:0", by_exit=True)


@row("worker-killed", "worker of a ps job: user process kill -9", COUNT)
def worker_killed(field: Field) -> Account:
    """SIGKILL to a worker that never ends by itself."""
    return _die_in_a_role(field, "worker:0", by_exit=False)


@row("worker-exits", "worker of a ps job: user process exit 1", COUNT)
def worker_exits(field: Field) -> Account:
    """A worker that never ends by itself gives up."""
    return _die_in_a_role(field, "worker:0", by_exit=True)


@row("ps-killed", "ps: user process kill -9", COUNT)
def ps_killed(field: Field) -> Account:
    """SIGKILL to a parameter server: what it held is lost, so all start again from the checkpoint."""
    return _die_in_a_role(field, "ps:0", by_exit=False)


@row("ps-exits", "ps: user process exit 1", COUNT)
def ps_exits(field: Field) -> Account:
    """A parameter server gives up."""
    return _die_in_a_role(field, "ps:0", by_exit=True)


@row("evaluator-killed", "evaluator: user process kill -9", COUNT)
def evaluator_killed(field: Field) -> Account:
    """SIGKILL to the evaluator: it alone starts again, and nobody else notices."""
    return _die_in_a_role(field, "evaluator:0", by_exit=False)


@row("evaluator-exits", "evaluator: user process exit 1", COUNT)
def evaluator_exits(field: Field) -> Account:
    """The evaluator gives up; the others go on."""
    return _die_in_a_role(field, "evaluator:0", by_exit=True)
