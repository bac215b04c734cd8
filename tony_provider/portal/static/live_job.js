// The progress of a job whose end is not in Airflow's database: its current status, or how it ended.
import { address, jobPath, useJson } from "./api.js";
import { bytes, duration, figure, known, moment, NOTHING, short } from "./format.js";
import { html } from "./html.js";
import { Announcement, Problem, Section, Table } from "./parts.js";
import { State } from "./states.js";

const refresh = (answer) => (answer?.verdict ? 0 : 4); // seconds
const TASKS = 100; // limit of the table

// Return {answer, error, time}, and refresh it until the job has ended. `open`: whether the job may still run.
export function useLive(applicationId, open) {
  const { data: answer, error, time } = useJson(open ? address(jobPath(applicationId, "live")) : null, refresh);
  return { answer, error, time };
}

// A job has also ended if the cluster no longer lists it, although its application master has not reported an end.
export const hasEnded = ({ verdict, application_state: state, missing }) => verdict !== null || (state === null && !missing.length);

// The summary of a job without a final state describes its start, so replace its values with those of the newest status.
export function withStatus(summary, status) {
  if (!status) return summary;
  const { step, total_steps, steps_per_second, metrics } = leaderOf(status) ?? {};
  const { times, use, restarts, warnings, finished_ms } = status;
  const [checkpoint_step, resumed_step] = [status.checkpoint?.step, status.resumed?.step];
  const newer = { step, total_steps, steps_per_second, metrics, times, use, restarts, warnings, finished_ms, checkpoint_step, resumed_step };
  const given = (value) => known(value) && !(Array.isArray(value) && !value.length);
  return { ...summary, ...Object.fromEntries(Object.entries(newer).filter(([, value]) => given(value))) };
}

const leaderOf = (status) => status.tasks.find((task) => `${task.type}:${task.index}` === status.leader)?.progress;

// `live`: the result of `useLive`.
export function LiveJob({ live: { answer, error, time } }) {
  if (answer && hasEnded(answer)) return html`<${End} ...${answer} />`;
  const status = answer?.status;
  if (answer && !status) return html`<${Section} title="Progress"><p>${answer.application_state ?? "Unknown state"}: the job has no status yet. ${answer.missing.join("; ")}</p><//>`;
  if (error && !status) return html`<${Section} title="Progress"><${Problem} title="The status cannot be loaded:" text=${error} /><//>`;
  if (!status) return html`<${Section} title="Progress"><p className="soft">Loading the status …</p><//>`;
  const leader = leaderOf(status);
  return html`<${Section} title="Progress" note=${`as of ${moment(time, { seconds: true })}`}>
    <p><${State} state=${status.state} /> ${status.message}</p>
    <${Announcement} text=${`The job is ${status.state}`} />
    ${error && html`<${Problem} title="The status cannot be refreshed:" text=${error} />`}
    ${leader && html`<p className="progress"><progress value=${status.progress} max=${1} aria-label="Progress of the job"></progress>
      <span>${progress(leader, status.state)}</span></p>`}
    ${answer.missing.map((each) => html`<p key=${each} className="soft">${each}</p>`)}
    ${status.troubles.map((each) => html`<p key=${each} className="bad">${each}</p>`)}
    <${Tasks} tasks=${status.tasks} metrics=${answer.metrics.filter((each) => each.in_status)} />
  <//>`;
}

function progress({ step, total_steps: total, steps_per_second: pace }, state) {
  const running = state === "RUNNING";
  return [
    `step ${figure(step)}${known(total) ? ` of ${figure(total)}` : ""}`,
    running && known(pace) && `${short(pace)} steps/s`,
    running && total > step && pace > 0 && `about ${duration((total - step) / pace)} left`,
  ].filter(Boolean).join(", ");
}

function End({ verdict, reason, status, missing }) {
  const last = status && `The last status of its application master is ${status.state}, at ${moment(status.updated_ms, { seconds: true })}.`;
  return html`<${Section} title="End of the job" note="read from the cluster and the store">
    ${verdict
      ? html`<p><${State} state=${verdict} /> ${[status?.failure?.cause, reason || status?.message].filter(Boolean).join("; ")}</p><${Announcement} text=${`The job has ended: ${verdict}`} />`
      : html`<p>The cluster does not list this job any more, and its application master has not reported how it ended. ${last || "The store has no status of it."}</p>`}
    ${missing.map((each) => html`<p key=${each} className="soft">${each}</p>`)}
  <//>`;
}

const written = (value, unit) => (unit === "bytes" ? bytes(value) : known(value) ? `${figure(Math.round(value))} %` : NOTHING);

function Tasks({ tasks, metrics }) {
  const number = (text) => ({ text, number: true });
  const hasActivity = tasks.some((task) => task.activity);
  const head = ["Task", "State", "Node", ...metrics.map((each) => number(each.title)), number("Step"), ...(hasActivity ? ["Activity"] : [])];
  const rows = tasks.slice(0, TASKS).map((task) => [
    `${task.type}:${task.index}`,
    html`<${State} state=${task.state} />`,
    task.node ?? NOTHING,
    ...metrics.map(({ name, unit }) => (task.state === "RUNNING" ? written(task[name], unit) : NOTHING)),
    figure(task.progress?.step),
    ...(hasActivity ? [task.activity] : []),
  ]);
  return html`<${Table} caption="Tasks" head=${head} rows=${rows} />
    ${tasks.length > TASKS && html`<p className="soft">The first ${TASKS} of ${tasks.length.toLocaleString("en")} tasks.</p>`}`;
}
