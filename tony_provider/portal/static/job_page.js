// The page of one job: what Airflow's database knows of it at once, then what its store has.
import { address, jobPath, useJson } from "./api.js";
import { duration, figure, known, runDate, moment, NOTHING, ZONE } from "./format.js";
import { html } from "./html.js";
import { JobHistory } from "./job_history.js";
import { hasEnded, LiveJob, useLive } from "./live_job.js";
import { Announcement, Facts, Fold, Loading, Outside, Problem, Section, State, To } from "./parts.js";
import { toComparison, toDates, toJob, toJobs, toRun, toTaskInstance } from "./routes.js";
import { Differences } from "./specification.js";
import { TensorBoard } from "./tensorboard.js";
import { TimeUse } from "./time_use.js";
import { TypeUse } from "./type_use.js";

// Seconds, while its end may yet come into Airflow's database.
const renewed = (job) => (["RUNNING", "UNSEEN"].includes(job?.state) ? 5 : 0);

// Why there is no verdict, where the task does not just wait for it.
const OPEN = {
  UNSEEN: "No task watches this job now. Its task will run again, and will then report the state of the job.",
  UNWATCHED: "The task does not wait for the end of this job.",
  LOST: "The end of this job was not recorded: its task was marked or cleared, or the Airflow worker died.",
};

// Kinds of failure, in words; another one is told as it is.
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

// `back`: whether a link leads back to the list.
export function JobPage({ applicationId, back = false }) {
  const { data, error, loading } = useJson(address(jobPath(applicationId)), renewed);
  return html`<div>
    ${back && html`<p><${To} to=${toJobs()}>← Training jobs<//></p>`}
    ${loading && html`<header><h1>${applicationId}</h1></header><${Loading} what="the job" />`}
    ${error && html`<${Problem} title=${`${applicationId}:`} text=${error} />`}
    ${data && html`<${Job} ...${data} />`}
  </div>`;
}

function Job({ summary: kept, state, task_state: taskState, previous, others, tensorboard, problems }) {
  const live = useLive(kept.application_id, !kept.verdict);
  const summary = kept.verdict ? kept : brought(kept, live.answer?.status);
  const running = !kept.verdict && (live.answer ? !hasEnded(live.answer) : state === "RUNNING");
  return html`<article>
    <${Head} summary=${summary} state=${state} />
    ${OPEN[state] && html`<p>${OPEN[state]} ${taskState && html`<span className="soft">State of the task: ${taskState.replaceAll("_", " ")}.</span>`}</p>`}
    <${Announcement} text=${`${summary.name || summary.application_id}: ${state}`} />
    ${!kept.verdict && html`<${LiveJob} live=${live} />`}
    <${Warnings} title="Unreadable data" warnings=${problems} />
    <${Advice} advice=${summary.advice} />
    <${Warnings} title="Warnings" warnings=${summary.warnings} />
    <div className="columns">
      <${Section} title="Summary"><${Figures} summary=${summary} running=${running} /><//>
      <${Section} title="Details"><${Origin} summary=${summary} /><//>
      <${Section} title="Time by phase"><${TimeUse} times=${summary.times} /><//>
    </div>
    <${Section} title="Requested and used resources"><${TypeUse} use=${summary.use} /><//>
    <${JobHistory} summary=${summary} running=${running} />
    ${tensorboard.length > 0 && html`<${TensorBoard} commands=${tensorboard} />`}
    ${previous && html`<${Section} title="Changes since the previous run"><${Changes} previous=${previous} applicationId=${summary.application_id} /><//>`}
    <${Others} summary=${summary} others=${others} />
  </article>`;
}

// The summary of a job without a verdict is of its beginning: what its status says by now.
function brought(summary, status) {
  if (!status) return summary;
  const { step, total_steps, steps_per_second, metrics } = status.tasks.find((task) => `${task.type}:${task.index}` === status.leader)?.progress ?? {};
  const { times, use, restarts, warnings, finished_ms } = status;
  const newer = { step, total_steps, steps_per_second, metrics, times, use, restarts, warnings, finished_ms };
  const said = (value) => known(value) && !(Array.isArray(value) && !value.length);
  return { ...summary, ...Object.fromEntries(Object.entries(newer).filter(([, value]) => said(value))) };
}

function Head({ summary, state }) {
  const isTold = summary.failed_task && summary.reason?.startsWith(summary.failed_task); // most reasons say it first
  const where = isTold ? "" : [summary.failed_task, summary.failed_node && `on ${summary.failed_node}`].filter(Boolean).join(" ");
  const failed = state === "FAILED" || summary.reason;
  return html`<header>
    <h1>${summary.name || summary.application_id} <${State} state=${state} /></h1>
    <p className="soft">${summary.application_id}</p>
    ${failed && html`<div className="problem"><strong>${KINDS[summary.failure_kind] ?? summary.failure_kind ?? state}${where && ` · ${where}`}:</strong> <span>${summary.reason || "the reason is unknown"}</span></div>`}
  </header>`;
}

function Figures({ summary, running }) {
  const until = summary.finished_ms ?? (running ? Date.now() : null);
  const metrics = Object.entries(summary.metrics);
  const step = known(summary.step) ? `${figure(summary.step)}${known(summary.total_steps) ? ` of ${figure(summary.total_steps)}` : ""}` : null;
  return html`<div>
    <${Facts} facts=${[
      ["Submitted", `${moment(summary.submitted_ms, { seconds: true })} (${ZONE})`],
      ["Finished", summary.finished_ms ? moment(summary.finished_ms, { seconds: true }) : null],
      ["Duration", until && duration((until - summary.submitted_ms) / 1000)],
      ["Step", step],
      ["Steps per second", known(summary.steps_per_second) ? figure(summary.steps_per_second) : null],
      ["Restarts", figure(summary.restarts)],
      ["Resumed from step", known(summary.resumed_step) ? figure(summary.resumed_step) : null],
      ["Newest checkpoint", known(summary.checkpoint_step) ? `step ${figure(summary.checkpoint_step)}` : null],
    ]} />
    ${metrics.length > 0 && html`<h3>Metrics</h3><${Facts} facts=${metrics.slice(0, 12).map(([name, value]) => [name, figure(value)])} />`}
    ${metrics.length > 12 && html`<${Fold} title=${`${metrics.length - 12} more metrics`}>${() => html`<${Facts} facts=${metrics.slice(12, 500).map(([name, value]) => [name, figure(value)])} />`}<//>`}
  </div>`;
}

function Origin({ summary }) {
  const mapped = summary.map_index >= 0 ? ` [${summary.map_index}]` : "";
  return html`<${Facts} facts=${[
    ["DAG", html`<${To} to=${toDates(summary.dag_id)}>${summary.dag_id}<//>`],
    ["Run", html`<${To} to=${toRun(summary)}>${summary.run_id}<//>`],
    ["Task", html`<${To} to=${toTaskInstance(summary)}>${summary.task_id}${mapped}<//>, try ${summary.try_number}`],
    ["Date", runDate(summary.run_date)],
    ["User", summary.proxy_user ? `${summary.user} (for ${summary.proxy_user})` : summary.user || NOTHING],
    ["Queue", summary.queue || NOTHING],
    ["Framework", summary.framework],
    ["Connection", summary.tony_conn_id],
    ["Directory", html`<code>${summary.application_dir}</code>`],
    ...Object.entries(summary.links).map(([name, link]) => [name, html`<${Outside} address=${link}>open<//>`]),
  ]} />`;
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

function Warnings({ title, warnings }) {
  if (!warnings.length) return null;
  return html`<${Section} title=${title} className="warnings"><ul>${warnings.slice(0, 50).map((each, at) => html`<li key=${at}>${each}</li>`)}</ul><//>`;
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
