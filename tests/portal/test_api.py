"""The portal's API, asked through Airflow's own app, database and login."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from airflow.sdk import CronPartitionTimetable

from tests.portal import stored
from tests.portal.conftest import As
from tony_provider.cluster.records.summary import DETAILS_KEY, JOB_KEY, JobSummary
from tony_provider.portal.job_views import without_output
from tony_provider.portal.pages import version
from tony_provider.portal.plugin import TonyPlugin

CLICKS, DIGITS, NOBODYS = stored.application_id(0), stored.application_id(100), stored.application_id(99_999)
OF_ONE = ["", "/history", "/specification", "/live"]
OF_CLICKS = [*(f"/jobs/{CLICKS}{each}" for each in OF_ONE), f"/compare?ids={CLICKS}"]
REFUSED = f"/refusal?dag_id=clicks&run_id={stored.run_id(0)}&task_id=train"
LOGS = [f"/jobs/{CLICKS}/logs", f"/jobs/{CLICKS}/logs/worker:0"]
DATES = "/dags/clicks/dates"

pytestmark = pytest.mark.usefixtures("jobs")


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    assert answer.json()["total"] == len(answer.json()["jobs"])
    return [row["application_id"] for row in answer.json()["jobs"]]


NESTED = json.loads("[" * 800 + "]" * 800)


def days(*numbers: int) -> list[str]:
    return [stored.application_id(number) for number in numbers]


@pytest.mark.parametrize("path", ["/jobs", *OF_CLICKS, *LOGS, DATES, REFUSED])
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}])
def test_whoever_has_not_logged_in_gets_nothing(client: As, path: str, headers: dict[str, str]) -> None:
    answer = client(None).get(f"/tony/api{path}", headers=headers)
    assert answer.status_code == (403 if headers else 401)  # Airflow's own answers
    assert "application" not in answer.text


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/redoc", "/api", "/api/nothing"])
def test_nothing_else_is_served(client: As, path: str) -> None:
    assert client(None).get(f"/tony{path}").status_code == 404


@pytest.mark.parametrize("user", ["bob", "carol", "erin"])
@pytest.mark.parametrize("path", [*OF_CLICKS, *LOGS])
def test_a_job_that_somebody_may_not_read_is_one_that_does_not_exist(client: As, user: str, path: str) -> None:
    """Guessed addresses tell nothing, not even that there is something."""
    hidden = client(user).get(f"/tony/api{path}")
    nothing = client(user).get(f"/tony/api{path.replace(CLICKS, NOBODYS)}")
    assert hidden.status_code == nothing.status_code == 404
    assert hidden.text == nothing.text


@pytest.mark.parametrize("user", ["bob", "carol", "erin"])
def test_a_dag_that_somebody_may_not_read_is_one_that_does_not_exist(client: As, user: str) -> None:
    hidden, nothing = (client(user).get(f"/tony/api/dags/{dag}/dates") for dag in ("clicks", "nobodys"))
    assert hidden.status_code == nothing.status_code == 404
    assert hidden.text == nothing.text


@pytest.mark.parametrize(
    ("user", "found"), [("alice", [DIGITS, *days(3, 1, 0)]), ("bob", [DIGITS]), ("carol", []), ("erin", [])]
)
def test_lists_hold_what_somebody_may_read(client: As, user: str, found: list[str]) -> None:
    assert ids(client(user).get("/tony/api/jobs")) == found
    assert ids(client(user).get("/tony/api/jobs?text=train")) == found
    assert ids(client(user).get("/tony/api/jobs?dag_id=clicks")) == [each for each in found if each != DIGITS]


def test_whoever_may_not_read_task_logs_finds_none(client: As) -> None:
    assert client("dave").get(f"/tony/api/jobs/{CLICKS}").status_code == 200
    for path in LOGS:
        assert client("dave").get(f"/tony/api{path}").status_code == 404
        assert client("alice").get(f"/tony/api{path}").status_code == 503  # there is no such store


@pytest.mark.parametrize("path", ["/jobs", f"/jobs/{DIGITS}", f"/compare?ids={DIGITS}"])
def test_what_a_program_has_printed_is_for_those_who_may_read_task_logs(client: As, path: str) -> None:
    printed = [r"worker:0 <b>died</b>\nits last words", "ValueError: <i>secret</i> data", r"ended\nits printed text"]
    told = client("bob").get(f"/tony/api{path}").text
    assert [each for each in printed if each not in told] == []
    told = client("judy").get(f"/tony/api{path}").text
    assert "worker:0 <b>died</b>" in told
    assert "worker:1 ended" in told
    assert [each for each in ("last words", "secret", "printed text") if each in told] == []
    for word in ("words", "secret"):
        assert ids(client("bob").get(f"/tony/api/jobs?text={word}")) == [DIGITS]
        assert ids(client("judy").get(f"/tony/api/jobs?text={word}")) == []


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ("bob", "the job specification has one problem:\n  tasks: missing"),
        ("judy", "the job specification has one problem:"),
        ("carol", None),
        ("erin", None),
    ],
)
def test_a_refused_job_has_its_reason(client: As, user: str, text: str | None) -> None:
    instance = {"dag_id": "digits", "run_id": stored.run_id(0), "task_id": "train"}
    found = client(user).get("/tony/api/refusal", params=instance).json()["refusal"]
    assert found == (text and {"text": text, "try_number": 2, "time_ms": 1_767_600_000_000})


@pytest.mark.parametrize("more", [{}, {"run_id": "none"}, {"task_id": "a\0"}, {"map_index": 3}, {"dag_id": "nobodys"}])
def test_no_refusal_or_a_damaged_one(client: As, more: dict[str, Any]) -> None:
    instance = {"dag_id": "clicks", "run_id": stored.run_id(0), "task_id": "train", **more}
    answer = client("alice").get("/tony/api/refusal", params=instance)
    assert (answer.status_code, answer.json()) == (200, {"refusal": None})


def test_a_value_that_is_named_cause_is_no_output() -> None:
    plain = {"metrics": {"cause": 0.5}, "failure": {"cause": "ValueError: x", "message": "worker:0 ended\nx"}}
    assert without_output(plain) == {"metrics": {"cause": 0.5}, "failure": {"cause": "", "message": "worker:0 ended"}}


def test_a_connection_gives_no_access_to_the_data_of_a_dag(client: As) -> None:
    which = f"dag_id=digits&run_id={stored.run_id(0).replace('+', '%2B')}&task_id=train"
    for user, path in (("judy", f"/refusal?{which}"), ("erin", "/dags/clicks/dates?")):
        plain = client(user).get(f"/tony/api{path}")
        with_connection = client(user).get(f"/tony/api{path}&conn_id=tony_default")
        assert (plain.status_code, plain.text) == (with_connection.status_code, with_connection.text)
    assert "missing" not in client("judy").get(f"/tony/api/refusal?{which}&conn_id=tony_default").text


def test_a_comparison_leaves_out_what_somebody_may_not_read(client: As) -> None:
    answer = client("bob").get(f"/tony/api/compare?ids={DIGITS},{CLICKS},{NOBODYS}").json()
    assert [job["application_id"] for job in answer["jobs"]] == [DIGITS]
    assert answer["missing"] == [CLICKS, NOBODYS]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("verdict=FAILED", [DIGITS]),
        ("verdict=failed,succeeded&dag_id=digits", [DIGITS]),
        ("verdict=RUNNING", []),
        ("user=bob", [DIGITS]),
        ("text=<B>DIED", [DIGITS]),
        ("text=clicks succeeded", days(3, 1, 0)),
        ("text=%25", []),
        (f"run_id={stored.run_id(0).replace('+', '%2B')}", [DIGITS, *days(0)]),
        ("task_id=none", []),
        ("map_index=0", []),
        ("map_index=-1&dag_id=digits", [DIGITS]),
        (f"dag_id=clicks&after={stored.day(1).isoformat().replace('+', '%2B')}", days(3, 1)),
        ("dag_id=clicks&before=2026-01-06", days(0)),
        ("dag_id=clicks&date_after=2026-01-06&date_before=2026-01-08", days(1)),
        ("dag_id=clicks&order=submitted", days(0, 1, 3)),
        ("dag_id=clicks&order=-restarts", days(3, 1, 0)),
        ("order=dag&text=train", [*days(0, 1, 3), DIGITS]),
    ],
)
def test_filters(client: As, query: str, found: list[str]) -> None:
    assert ids(client("alice").get(f"/tony/api/jobs?{query}")) == found


def test_pages_of_a_list(client: As) -> None:
    answer = client("alice").get("/tony/api/jobs?limit=2&offset=1").json()
    assert [row["application_id"] for row in answer["jobs"]] == days(3, 1)
    assert answer["total"] == 4


@pytest.mark.parametrize(
    "query",
    [
        *("order=nonsense", "map_index=x", "limit=501", "limit=x", "offset=-1", "after=noon"),
        *("order=metric:", "order=other:loss", "columns=loss", "columns=param:", "&".join(["columns=param:a"] * 21)),
    ],
)
def test_arguments_that_make_no_sense_are_named(client: As, query: str) -> None:
    answer = client("alice").get(f"/tony/api/jobs?{query}")
    assert answer.status_code == 422
    assert query.partition("=")[0] in answer.text


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("param:lr", days(1, 0, 3)),  # numbers before texts
        ("-param:lr", days(0, 1, 3)),
        ("param:seed", days(1, 3, 0)),  # jobs without a value come last
        ("-param:seed", days(3, 1, 0)),
        ("metric:loss", days(3, 1, 0)),
        ("-metric:loss", days(0, 1, 3)),
        ("metric:none", days(0, 1, 3)),
    ],
)
def test_jobs_are_sorted_by_metrics_and_parameters(client: As, order: str, found: list[str]) -> None:
    answer = client("alice").get(f"/tony/api/jobs?dag_id=clicks&order={order}")
    assert sorted(ids(answer)) == sorted(found)
    assert order == "metric:none" or ids(answer) == found


def test_a_list_has_the_columns_that_were_chosen(client: As) -> None:
    path = "/tony/api/jobs?dag_id=clicks&order=submitted"
    answer = client("alice").get(f"{path}&columns=param:seed&columns=metric:loss&columns=param:none").json()
    assert answer["columns"] == ["metric:loss", "param:seed", "param:lr"]
    expected = [{"metric:loss": 1.0}, {"param:seed": "7", "metric:loss": 0.5}, {"param:seed": "7", "metric:loss": 0.25}]
    assert [row["columns"] for row in answer["jobs"]] == expected
    for row in client("alice").get(path).json()["jobs"]:
        assert row["columns"] == {}
        assert not {"metrics", "parameters", "parameter_sources", "model_dir", "returned"} & set(row)


@pytest.mark.parametrize("path", [f"/jobs/{CLICKS}", f"/compare?ids={CLICKS}"])
@pytest.mark.parametrize(("user", "returned"), [("alice", '{"accuracy": 0.5}'), ("kate", None)])
def test_results_of_a_job(client: As, path: str, user: str, returned: str | None) -> None:
    """A returned value is an XCom, which Airflow has a permission for."""
    answer = client(user).get(f"/tony/api{path}").json()
    found = answer["jobs"][0] if "jobs" in answer else answer["summary"]
    assert (found["parameters"], found["parameter_sources"]["lr"]) == ({"lr": "0.1"}, "program")
    assert (found["model_dir"], found["returned"]) == ("hdfs://n/models/0", returned)


def test_a_row_has_figures(client: As) -> None:
    (row,) = client("bob").get("/tony/api/jobs").json()["jobs"]
    assert not {"curves", "use", "advice", "fingerprint", "links"} & set(row)
    assert (row["state"], row["reason"], row["problems"]) == ("FAILED", "worker:0 <b>died</b>\nits last words", [])
    assert (row["duration_s"], row["waiting_s"]) == (3600.0, 90.0)
    assert (row["memory_gb_hours"], row["vcore_hours"], row["gpu_hours"]) == (4.0, 4.0, 2.0)


def test_a_job(client: As) -> None:
    found = client("alice").get(f"/tony/api/jobs/{stored.application_id(3)}").json()
    assert found["summary"]["curves"][0]["metric"] == "loss"
    assert found["summary"]["metrics"] == {"loss": 0.25}
    assert (found["state"], found["previous"], found["others"]) == ("SUCCEEDED", stored.application_id(1), [])
    assert found["tensorboard"] == [f"airflow tony tensorboard {stored.application_id(3)}"]
    assert client("alice").get(f"/tony/api/jobs/{CLICKS}").json()["previous"] is None


def test_dates_with_a_gap(client: As) -> None:
    (task,) = client("alice").get("/tony/api/dags/clicks/dates").json()["tasks"]
    assert (task["task_id"], task["map_index"], task["metrics"]) == ("train", -1, ["loss"])
    assert [point["application_id"] for point in task["points"]] == [*days(0, 1), None, *days(3)]
    assert [point["date"] for point in task["points"]] == [stored.day(number).isoformat() for number in range(4)]
    assert task["points"][2]["metrics"] is None
    assert task["points"][1]["metrics"] == {"loss": 0.5}
    assert client("alice").get("/tony/api/dags/clicks/dates?task_id=none").json() == {"tasks": []}


def test_a_date_of_the_schedule_that_was_never_run_is_a_gap(client: As) -> None:
    stored.add_dag("digits_daily")
    stored.add_schedule("digits_daily", "0 6 * * *")
    first, last = stored.add_runs("digits_daily", 1, first=0)[0], stored.add_runs("digits_daily", 1, first=3)[0]
    for number, dag_run_id in {0: first, 3: last}.items():
        stored.add_instance("digits_daily", number, "success")
        stored.add(
            dag_run_id, stored.summary(number, "digits_daily", application_id=stored.application_id(200 + number))
        )
    for _ in range(2):  # the second time by what is known of the schedule
        (task,) = client("ivan").get("/tony/api/dags/digits_daily/dates").json()["tasks"]
        assert [point["date"] for point in task["points"]] == [stored.day(number).isoformat() for number in range(4)]
        assert [point["application_id"] for point in task["points"]] == [*days(200), None, None, *days(203)]
    stored.add_schedule("digits_daily", "0 6 * * MON")
    (task,) = client("ivan").get("/tony/api/dags/digits_daily/dates").json()["tasks"]
    assert [point["application_id"] for point in task["points"]] == days(200, 203)


def test_the_dates_of_partitions_and_the_gaps_between_them(client: As) -> None:
    stored.add_dag("parted")
    stored.add_schedule("parted", CronPartitionTimetable("0 6 * * *", timezone="UTC"))
    for number, key in {0: "x", 3: "y"}.items():
        (dag_run_id,) = stored.add_partitions("parted", {number: key})
        stored.add_instance("parted", number, "success")
        stored.add(dag_run_id, stored.summary(number, "parted", application_id=stored.application_id(300 + number)))
    stored.add_partitions("parted", {4: "eu"}, dated=False)
    (task,) = client("ivan").get("/tony/api/dags/parted/dates").json()["tasks"]
    assert [point["date"] for point in task["points"]] == [stored.day(number).isoformat() for number in range(4)]
    assert [point["application_id"] for point in task["points"]] == [*days(300), None, None, *days(303)]


def test_a_comparison_without_the_store_is_of_fingerprints_and_says_so(client: As) -> None:
    answer = client("alice").get(f"/tony/api/compare?ids={','.join(days(0, 1))}").json()
    assert (answer["differences_of"], answer["states"]) == ("fingerprints", ["SUCCEEDED", "SUCCEEDED"])
    assert answer["differences"] == {"tasks.worker.command": ["0", "1"]}
    assert "there is no connection 'tony_default'" in answer["reason"]
    assert answer["tensorboard"] == [f"airflow tony tensorboard {' '.join(days(0, 1))}"]
    many = ",".join(days(*range(9)))
    assert client("alice").get(f"/tony/api/compare?ids={many}").status_code == 422


@pytest.fixture
def strange(jobs: dict[str, int]) -> dict[str, str]:
    """Jobs that have no verdict, or a summary that is no good: ids by what they are."""
    run = jobs["clicks-2"]
    tasks = {"runs": "deferred", "left": "success", "failed": "failed", "again": "running", "cleared": None}
    tasks |= {"marked": "success", "queued": "queued", "retried": "up_for_retry"}
    for task, state in tasks.items():
        stored.add_instance("clicks", 2, state, task_id=task)
    found = {}
    for number, (name, task) in enumerate((*((task, task) for task in tasks), ("before", "again"), ("after", "again"))):
        found[name] = f"application_1_{number}"
        more: dict[str, Any] = {"submitted_ms": 1000 + number, "verdict": None, "finished_ms": None, "task_id": task}
        more["watched"] = name != "left"
        stored.add(run, stored.summary(2, application_id=found[name], **more))
    about = stored.summary(2, task_id="strange")
    texts = {
        "cut": '{"verdict": "SUCCE',
        "newer": json.dumps({"version": 9, "verdict": "SPLENDID", "step": [], "metrics": {"<b>": "NaN"}, "glory": 1}),
        "elsewhere": '{"__airflow_state_ref__": "s3://bucket/1"}',
        "liar": json.dumps({"dag_id": "digits", "task_id": "other", "verdict": "SUCCEEDED", "application_id": DIGITS}),
        "nonsense": json.dumps({name: [{"a": [None]}] for name in attrs.fields_dict(JobSummary)}),
        "numbers": json.dumps(dict.fromkeys(attrs.fields_dict(JobSummary), 1e300)),
        "huge": json.dumps({**dict.fromkeys(attrs.fields_dict(JobSummary), 10**400), "times": {"queue": 10**400}}),
        "nulls": json.dumps({**dict.fromkeys(attrs.fields_dict(JobSummary)), "finished_ms": 5}),
        "times": '{"verdict": null, "submitted_ms": NaN, "finished_ms": -1}',
        "nested": json.dumps({"verdict": "FAILED", **{key: {"a": NESTED} for key in ("metrics", "times")}}),
        "texts": json.dumps(dict.fromkeys(attrs.fields_dict(JobSummary), "\ud800<b>")),
    }
    for name, text in texts.items():
        found[name] = f"application_2_{name}"
        columns = [stored.value(run, about, JOB_KEY + found[name], text)]
        if name == "cut":
            columns.append(stored.value(run, about, DETAILS_KEY + found[name], "[[["))
        stored.add_values(columns)
    return found


def test_states_and_summaries_of_any_kind(client: As, strange: dict[str, str]) -> None:
    answer = client("alice").get("/tony/api/jobs?dag_id=clicks&limit=500&columns=metric:%3Cb%3E").json()
    rows = {row["application_id"]: row for row in answer["jobs"]}
    states = {name: rows[application_id]["state"] for name, application_id in strange.items()}
    expected = {"runs": "RUNNING", "left": "UNWATCHED", "failed": "LOST", "before": "LOST", "after": "RUNNING"}
    expected |= {"cleared": "LOST", "marked": "LOST", "queued": "UNSEEN", "retried": "UNSEEN"}
    assert {name: states[name] for name in expected} == expected
    assert rows[strange["marked"]]["task_state"] == "success"
    assert rows[strange["cut"]]["task_state"] is None
    assert states["newer"] == "SPLENDID"
    assert rows[strange["newer"]]["columns"] == {"metric:<b>": "NaN"}
    for name, said in (("cut", "damaged"), ("newer", "step"), ("elsewhere", "backend"), ("nested", "metrics")):
        assert said in str(rows[strange[name]]["problems"])
    liar = rows[strange["liar"]]
    assert (liar["dag_id"], liar["task_id"]) == ("clicks", "strange")  # what it says of itself does not count
    assert client("bob").get(f"/tony/api/jobs/{strange['liar']}").status_code == 404
    for order in ("submitted", "-step", "date", "-state", "duration", "memory", "metric:loss", "-param:lr"):
        assert len(client("alice").get(f"/tony/api/jobs?order={order}&limit=500").json()["jobs"]) == answer["total"] + 1
    for name, application_id in strange.items():
        found = client("alice").get(f"/tony/api/jobs/{application_id}")
        assert found.status_code == 200, (name, found.text)
        assert found.json()["summary"]["application_id"] == application_id
    others = [strange["before"], strange["again"]]
    assert client("alice").get(f"/tony/api/jobs/{strange['after']}").json()["others"] == others
    assert client("alice").get("/tony/api/dags/clicks/dates").status_code == 200


def test_a_job_is_that_of_the_task_which_has_said_so_first(client: As, jobs: dict[str, int]) -> None:
    """Anybody's task may write what it likes into its own state."""
    mine = stored.summary(1, application_id="application_3_1", task_id="first")
    theirs = stored.summary(0, "digits", application_id="application_3_1", user="mallory", submitted_ms=9 * 10**12)
    stored.add(jobs["clicks-1"], mine)
    stored.add(jobs["digits-0"], theirs)
    found = client("alice").get("/tony/api/jobs/application_3_1").json()
    assert (found["summary"]["dag_id"], found["summary"]["user"]) == ("clicks", "alice")
    assert found["problems"] == ["other tasks also claim this job: train of digits"]


@pytest.mark.parametrize("query", ["dag_id=%00", "run_id=a%00", "task_id=%00"])
def test_names_that_no_database_has(client: As, query: str) -> None:
    found = client("alice").get(f"/tony/api/jobs?{query}").json()
    assert found == {"jobs": [], "total": 0, "columns": [], "problem": None}


@pytest.mark.parametrize(
    "path", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "/etc/passwd", "%2fetc%2fpasswd", ".", ""]
)
def test_no_file_but_those_of_the_pages_is_served(client: As, path: str) -> None:
    answer = client(None).get(f"/tony/static/{path}")
    assert answer.status_code in (404, 307)
    assert "portal_app" not in answer.text


def test_files_of_the_pages_have_their_types_and_are_asked_for_again(client: As) -> None:
    from tony_provider.portal.pages import DIRECTORY

    script = DIRECTORY / "test_of_types.mjs"
    script.write_text("export default 1;")
    try:
        first = client(None).get("/tony/static/test_of_types.mjs")
        again = client(None).get("/tony/static/test_of_types.mjs", headers={"If-None-Match": first.headers["etag"]})
    finally:
        script.unlink()
    assert first.headers["content-type"].startswith("text/javascript")
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["x-content-type-options"] == "nosniff"
    assert again.status_code == 304


@pytest.mark.parametrize("file", ["bundle_url", "icon", "icon_dark_mode"])
def test_a_browser_keeps_files_of_the_servers_own_version(client: As, file: str) -> None:
    for page in TonyPlugin().react_apps:
        address = f"/{page[file]}"
        answer = client(None).get(address)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["cache-control"]
        older = client(None).get(address.replace(version(), "000000000000"))  # as a page has it that was open before
        assert older.content == answer.content
        assert older.headers["cache-control"] == "no-cache"
        nothing = client(None).get(f"{address}.map")
        assert nothing.status_code == 404
        assert "immutable" not in nothing.headers.get("cache-control", "")
