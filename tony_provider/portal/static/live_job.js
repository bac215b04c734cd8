// A job whose end is not in Airflow's database: what it does now, as its master says it, or how it ended.
import { address, jobPath, useJson } from "./api.js";
import { bytes, duration, figure, known, moment, NOTHING } from "./format.js";
import { html } from "./html.js";
import { Announcement, Problem, Section, State, Table } from "./parts.js";

const renewed = (answer) => (answer?.verdict ? 0 : 4); // seconds
const TASKS = 100; // in the table

// {answer, error, time}, asked every few seconds for as long as something may change. `open`: whether it is asked at all.
export function useLive(applicationId, open) {
  const { data: answer, error, time } = useJson(open ? address(jobPath(applicationId, "live")) : null, renewed);
  return { answer, error, time };
}

// Also where the cluster does not know it any more, and its master has not said how it ended.
export const hasEnded = ({ verdict, application_state: state, missing }) => verdict !== null || (state === null && !missing.length);

// `live`: what `useLive` gives.
export function LiveJob({ live: { answer, error, time } }) {
  if (answer && hasEnded(answer)) return html`<${End} ...${answer} />`;
  const data = answer?.status;
  if (answer && !data) return html`<${Section} title="Current status"><p>${answer.application_state ?? "Unknown state"}: the job has no status yet. ${answer.missing.join("; ")}</p><//>`;
  if (error && !data) return html`<${Section} title="Current status"><${Problem} title="The status cannot be loaded:" text=${error} /><//>`;
  if (!data) return html`<${Section} title="Current status"><p className="soft">Loading the status …</p><//>`;
  const leader = data.tasks.find((task) => `${task.type}:${task.index}` === data.leader)?.progress;
  return html`<${Section} title="Current status" note=${`as of ${moment(time, { seconds: true })}`}>
    <p><${State} state=${data.state} /> ${data.message}</p>
    <${Announcement} text=${`The job is ${data.state}`} />
    ${error && html`<${Problem} title="The status cannot be refreshed:" text=${error} />`}
    ${leader && html`<p className="progress"><progress value=${data.progress} max=${1} aria-label="Progress of the job"></progress>
      <span>step ${figure(leader.step)}${known(leader.total_steps) ? ` of ${figure(leader.total_steps)}` : ""}${known(leader.steps_per_second) ? `, ${figure(leader.steps_per_second)} per second` : ""}${left(leader)}</span></p>`}
    ${answer.missing.map((each) => html`<p key=${each} className="soft">${each}</p>`)}
    ${data.troubles.map((each) => html`<p key=${each} className="bad">${each}</p>`)}
    <${Tasks} tasks=${data.tasks} metrics=${answer.metrics.filter((each) => each.in_status)} />
  <//>`;
}

function End({ verdict, reason, status, missing }) {
  const last = status && `The last status of its application master is ${status.state}, at ${moment(status.updated_ms, { seconds: true })}.`;
  return html`<${Section} title="End of the job" note="just read from the cluster and the store">
    ${verdict
      ? html`<p><${State} state=${verdict} /> ${reason || status?.message}</p><${Announcement} text=${`The job has ended: ${verdict}`} />`
      : html`<p>The cluster does not list this job any more, and its application master has not reported how it ended. ${last || "The store has no status of it."}</p>`}
    ${missing.map((each) => html`<p key=${each} className="soft">${each}</p>`)}
  <//>`;
}

function left({ step, total_steps: total, steps_per_second: pace }) {
  return total > step && pace > 0 ? `, about ${duration((total - step) / pace)} left` : "";
}

const written = (value, unit) => (unit === "bytes" ? bytes(value) : known(value) ? `${figure(Math.round(value))} %` : NOTHING);

function Tasks({ tasks, metrics }) {
  const number = (text) => ({ text, number: true });
  const head = ["Task", "State", "Node", ...metrics.map((each) => number(each.title)), number("Step"), "Activity"];
  const rows = tasks.slice(0, TASKS).map((task) => [
    `${task.type}:${task.index}`,
    html`<${State} state=${task.state} />`,
    task.node ?? NOTHING,
    ...metrics.map(({ name, unit }) => written(task[name], unit)),
    figure(task.progress?.step),
    task.activity,
  ]);
  return html`<${Table} caption="Tasks" head=${head} rows=${rows} />
    ${tasks.length > TASKS && html`<p className="soft">The first ${TASKS} of ${tasks.length.toLocaleString("en")} tasks.</p>`}`;
}
