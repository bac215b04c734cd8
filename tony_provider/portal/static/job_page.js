// The page of a job. It shows the data of Airflow's database first, and then the records from the store.
import { Actions } from "./actions.js";
import { address, jobPath, useJson } from "./api.js";
import { ZONE } from "./format.js";
import { html } from "./html.js";
import { JobRun, JobSummary } from "./job_facts.js";
import { HistoryProblems, LearningCurves, ResourcesOverTime, Specification, useHistory } from "./job_history.js";
import { LiveJob, hasEnded, useLive, withStatus } from "./live_job.js";
import { Logs } from "./logs.js";
import { Announcement, Contents, Fold, Loading, Problem, Section, To, Warnings } from "./parts.js";
import { toComparison, toJob, toJobs } from "./routes.js";
import { Differences } from "./specification.js";
import { Results } from "./results.js";
import { TrainingData } from "./stale.js";
import { State } from "./states.js";
import { TensorBoard } from "./tensorboard.js";
import { TimeLine } from "./time_line.js";
import { TimeUse } from "./time_use.js";
import { TypeUse } from "./type_use.js";

// Seconds between two requests, while Airflow's database may still get the end of the job.
const refresh = (job) => (["RUNNING", "SUSPENDED", "UNSEEN"].includes(job?.state) ? 5 : 0);

// Why the final state is unknown, except if the task simply waits for it.
const OPEN = {
  UNSEEN: "No task watches this job now. The next try of its task reports the state of the job.",
  UNWATCHED: "The task does not wait for the end of this job.",
  LOST: "The end of this job was not recorded: its task was marked or cleared, or the Airflow worker died.",
};

// Descriptions of the kinds of failure. Other kinds are shown unchanged.
const KINDS = {
  USER: "The program failed",
  OUT_OF_MEMORY: "Out of memory",
  CONTAINER_LOST: "A container was lost",
  LAUNCH: "A container or command could not be started",
  NODE: "Fault of the node or container",
  QUEUE_TIMEOUT: "Queue timeout",
  REGISTRATION_TIMEOUT: "Registration timeout: a task did not start in time",
  DEPENDENCY_TIMEOUT: "Dependency timeout: a task waited too long for other tasks",
  PREEMPTED: "A container was preempted",
  STALLED: "Stalled: no new step in time",
  UPLOAD: "The results could not be stored",
  INPUT: "An input could not be listed or distributed",
  OUTPUT: "An output could not be published",
  CHECKPOINT: "The checkpoint could not be restored",
  FENCED: "A newer application has taken over",
  KILLED: "The job was killed",
  INTERNAL: "Internal error of tony_provider",
};

// `back`: whether to link to the list of jobs.
export function JobPage({ applicationId, back = false }) {
  const { data, error, loading } = useJson(address(jobPath(applicationId)), refresh);
  return html`<div>
    ${back && html`<p><${To} to=${toJobs()}>← Training jobs<//></p>`}
    ${loading && html`<header><h1>${applicationId}</h1></header><${Loading} what="the job" />`}
    ${error && html`<${Problem} title=${`${applicationId}:`} text=${error} />`}
    ${data && html`<${Job} ...${data} />`}
  </div>`;
}

function Job({ summary: kept, state: listed, task_state: taskState, previous, others, tensorboard, problems }) {
  const live = useLive(kept.application_id, !kept.verdict);
  const summary = kept.verdict ? kept : withStatus(kept, live.answer?.status);
  const newest = live.answer?.status?.state ?? null;
  const state = !kept.verdict && newest === "SUSPENDED" ? newest : listed === "SUSPENDED" && newest ? "RUNNING" : listed;
  const running = !kept.verdict && (live.answer ? !hasEnded(live.answer) : ["RUNNING", "SUSPENDED"].includes(state));
  const stored = useHistory(summary, running);
  const { history } = stored;
  const logged = running ? Object.keys(history?.samples ?? {}) : [];
  return html`<article>
    <${Head} summary=${summary} state=${state} />
    ${OPEN[state] && html`<p>${OPEN[state]} ${taskState && html`<span className="soft">State of the task: ${taskState.replaceAll("_", " ")}.</span>`}</p>`}
    <${Announcement} text=${`${summary.name || summary.application_id}: ${state}`} />
    <${Contents} titles=${["Learning curves", "Results", ...(previous ? ["Changes"] : []), "Resources", ...(history ? ["Timeline"] : []), "Time by phase", ...(stored.error ? [] : ["Logs"]), ...(history ? ["Specification"] : [])]} />
    ${!kept.verdict && html`<${LiveJob} live=${live} />`}
    ${running && html`<${Actions} applicationId=${kept.application_id} state=${newest} counts=${countsOf(live.answer?.status)} step=${summary.checkpoint_step} />`}
    <${Warnings} title="Unreadable data" warnings=${problems} />
    <${Advice} advice=${summary.advice} />
    <${Warnings} title="Warnings" warnings=${summary.warnings} />
    <${HistoryProblems} stored=${stored} />
    <div className="columns">
      <${Section} title="Summary" note=${`times in ${ZONE}`}><${JobSummary} summary=${summary} running=${running} /><//>
      <${Section} title="Run"><${JobRun} summary=${summary} /><//>
    </div>
    <${Section} title="Learning curves"><${LearningCurves} summary=${summary} stored=${stored} /><//>
    <${Results} summary=${summary} status=${live.answer?.status} />
    ${state === "SUCCEEDED" && html`<${TrainingData} applicationId=${summary.application_id} />`}
    ${previous && html`<${Section} title="Changes since the previous run"><${Changes} previous=${previous} applicationId=${summary.application_id} /><//>`}
    <${Section} title="Resources: requested and used"><${TypeUse} use=${summary.use} /><${ResourcesOverTime} stored=${stored} /><//>
    <div className="columns wide-first">
      ${history && html`<${Section} title="Timeline"><${TimeLine} events=${history.events} submittedMs=${summary.submitted_ms} finishedMs=${summary.finished_ms} running=${running} /><//>`}
      <${Section} title="Time by phase"><${TimeUse} times=${summary.times} /><//>
    </div>
    ${!stored.error && html`<${Section} title="Logs"><${Fold} title="Output of the tasks" open=${running || Boolean(summary.reason)}>${() => html`<${Logs} applicationId=${summary.application_id} running=${logged} preferred=${summary.failed_task} />`}<//><//>`}
    ${history && html`<${Section} title="Specification"><${Specification} history=${history} /><//>`}
    ${history?.event_files && tensorboard.length > 0 && html`<${TensorBoard} commands=${tensorboard} />`}
    <${Others} summary=${summary} others=${others} />
  </article>`;
}

// The number of tasks by type.
function countsOf(status) {
  const counts = {};
  for (const { type } of status?.tasks ?? []) counts[type] = (counts[type] ?? 0) + 1;
  return { ...counts, ...status?.resizing };
}

function Head({ summary, state }) {
  const isNamed = summary.failed_task && summary.reason?.startsWith(summary.failed_task); // as in most reasons
  const where = isNamed ? "" : [summary.failed_task, summary.failed_node && `on ${summary.failed_node}`].filter(Boolean).join(" ");
  const failed = state === "FAILED" || summary.reason;
  return html`<header>
    <h1>${summary.name || summary.application_id} <${State} state=${state} /></h1>
    <p className="soft">${summary.application_id}</p>
    ${failed && html`<div className="problem">${summary.cause && html`<p><strong>${summary.cause}</strong></p>`}<strong>${KINDS[summary.failure_kind] ?? summary.failure_kind ?? state}${where && ` · ${where}`}:</strong> <span>${summary.reason || "the reason is unknown"}</span></div>`}
  </header>`;
}

function Advice({ advice }) {
  if (!advice.length) return null;
  return html`<${Section} title="Advice" className="advice">
    <ul>${advice.slice(0, 3).map(
      (each) => html`<li key=${each.rule}>${each.text} <small>(${each.rule}, confidence: ${each.confidence})</small>
        ${each.change && html`<${Fold} title="Change, as overrides">${() => html`<pre tabIndex=${0}>${JSON.stringify(each.change, null, 2)}</pre>`}<//>`}
      </li>`,
    )}</ul>
  <//>`;
}

function Changes({ previous, applicationId }) {
  const { data, error, loading } = useJson(address("compare", { ids: `${previous},${applicationId}` }));
  if (loading) return html`<${Loading} what="the changes" />`;
  if (error) return html`<${Problem} title="The changes cannot be loaded:" text=${error} />`;
  const hashes = data.differences_of === "fingerprints";
  return html`<div>
    ${hashes && html`<p className="soft">The specifications cannot be read, so these are differences between fingerprints (hashes): ${data.reason}</p>`}
    <${Differences} caption="Changes since the previous run" differences=${data.differences} names=${["Previous run", "This job"]} none="No changes: both jobs have the same specification." />
    <p><${To} to=${toComparison([previous, applicationId])}>Compare with the previous run<//> · <${To} to=${toJob(previous)}>Previous run<//></p>
  </div>`;
}

function Others({ summary, others }) {
  const rest = others.filter((id) => id !== summary.application_id);
  if (!rest.length) return null;
  return html`<${Section} title="Other tries of this task">
    <ul>${rest.slice(0, 50).map((id) => html`<li key=${id}><${To} to=${toJob(id)}>${id}<//></li>`)}</ul>
    <p><${To} to=${toComparison([summary.application_id, ...rest].slice(0, 8))}>Compare the tries<//></p>
  <//>`;
}
