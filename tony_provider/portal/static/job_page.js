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
  UNSEEN: "Nobody looks at it now. Its task is to run again, and will say then what became of it.",
  UNWATCHED: "Its task did not wait for its end.",
  LOST: "Its end was not recorded: its task was ended or cleared meanwhile, or its worker died.",
};

// Kinds of failure, in words; another one is told as it is.
const KINDS = {
  USER: "The program failed",
  OUT_OF_MEMORY: "Out of memory",
  CONTAINER_LOST: "A container was lost",
  LAUNCH: "A container or a command could not be started",
  QUEUE_TIMEOUT: "The queue took too long",
  REGISTRATION_TIMEOUT: "A task did not start in time",
  DEPENDENCY_TIMEOUT: "A task waited too long for others",
  PREEMPTED: "The cluster took a container back",
  STALLED: "No new step came",
  UPLOAD: "What it left could not be kept",
  INPUT: "An input could not be dealt out",
  OUTPUT: "An output could not be put in its place",
  CHECKPOINT: "Its checkpoint could not be restored",
  FENCED: "A newer application has taken over",
  KILLED: "It was ended",
  INTERNAL: "tony_provider itself failed",
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
    ${OPEN[state] && html`<p>${OPEN[state]} ${taskState && html`<span className="soft">The task is ${taskState.replaceAll("_", " ")}.</span>`}</p>`}
    <${Announcement} text=${`${summary.name || summary.application_id}: ${state}`} />
    ${!kept.verdict && html`<${LiveJob} live=${live} />`}
    <${Warnings} title="What of it cannot be read" warnings=${problems} />
    <${Advice} advice=${summary.advice} />
    <${Warnings} title="Warnings" warnings=${summary.warnings} />
    <div className="columns">
      <${Section} title="Figures"><${Figures} summary=${summary} running=${running} /><//>
      <${Section} title="Where it came from"><${Origin} summary=${summary} /><//>
      <${Section} title="Where the time went"><${TimeUse} times=${summary.times} /><//>
    </div>
    <${Section} title="Asked and used"><${TypeUse} use=${summary.use} /><//>
    <${JobHistory} summary=${summary} running=${running} />
    ${tensorboard.length > 0 && html`<${TensorBoard} commands=${tensorboard} />`}
    ${previous && html`<${Section} title="Changed against the run before"><${Changes} previous=${previous} applicationId=${summary.application_id} /><//>`}
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
    ${failed && html`<div className="problem"><strong>${KINDS[summary.failure_kind] ?? summary.failure_kind ?? state}${where && ` · ${where}`}:</strong> <span>${summary.reason || "nothing is known of why"}</span></div>`}
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
      ["Took", until && duration((until - summary.submitted_ms) / 1000)],
      ["Step", step],
      ["Steps per second", known(summary.steps_per_second) ? figure(summary.steps_per_second) : null],
      ["Restarts", figure(summary.restarts)],
      ["Went on from step", known(summary.resumed_step) ? figure(summary.resumed_step) : null],
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
    ["Files", html`<code>${summary.application_dir}</code>`],
    ...Object.entries(summary.links).map(([name, link]) => [name, html`<${Outside} address=${link}>open<//>`]),
  ]} />`;
}

function Advice({ advice }) {
  if (!advice.length) return null;
  return html`<${Section} title="Advice" className="advice">
    <ul>${advice.slice(0, 3).map(
      (each) => html`<li key=${each.rule}>${each.text} <small>(${each.rule}, confidence: ${each.confidence})</small>
        ${each.change && html`<${Fold} title="The change, for overrides">${() => html`<pre tabIndex=${0}>${JSON.stringify(each.change, null, 2)}</pre>`}<//>`}
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
  if (loading) return html`<${Loading} what="what changed" />`;
  if (error) return html`<${Problem} title="What changed is not known:" text=${error} />`;
  const hashes = data.differences_of === "fingerprints";
  return html`<div>
    ${hashes && html`<p className="soft">These are hashes of what was trained, since the specifications cannot be read: ${data.reason}</p>`}
    <${Differences} caption="What changed against the run before" differences=${data.differences} names=${["Before", "This job"]} none="Nothing: both were given the same job." />
    <p><${To} to=${toComparison([previous, applicationId])}>Compare with the run before<//> · <${To} to=${toJob(previous)}>The run before<//></p>
  </div>`;
}

function Others({ summary, others }) {
  const rest = others.filter((id) => id !== summary.application_id);
  if (!rest.length) return null;
  return html`<${Section} title="Other tries of this task">
    <ul>${rest.slice(0, 50).map((id) => html`<li key=${id}><${To} to=${toJob(id)}>${id}<//></li>`)}</ul>
    <p><${To} to=${toComparison([summary.application_id, ...rest].slice(0, 8))}>Compare them<//></p>
  <//>`;
}
