// What a running job does now, as its master says it, renewed every few seconds.
import { address, jobPath, useJson } from "./api.js";
import { bytes, duration, figure, known, moment, NOTHING } from "./format.js";
import { html } from "./html.js";
import { Announcement, Problem, Section, State, Table } from "./parts.js";

const RENEWED = 4; // seconds
const TASKS = 100; // in the table

export function LiveJob({ applicationId }) {
  const { data: answer, error, time } = useJson(address(jobPath(applicationId, "live")), RENEWED);
  const data = answer?.status;
  if (answer && !data) return html`<${Section} title="Now"><p>${answer.application_state ?? "It is not known what it does"}: there is no status yet. ${answer.missing.join("; ")}</p><//>`;
  if (error && !data) return html`<${Section} title="Now"><${Problem} title="The job cannot be asked:" text=${error} /><//>`;
  if (!data) return html`<${Section} title="Now"><p className="soft">Asking the job …</p><//>`;
  const leader = data.tasks.find((task) => `${task.type}:${task.index}` === data.leader)?.progress;
  return html`<${Section} title="Now" note=${`as of ${moment(time, { seconds: true })}`}>
    <p><${State} state=${data.state} /> ${data.message}</p>
    <${Announcement} text=${`The job is ${data.state}`} />
    ${error && html`<${Problem} title="No newer status:" text=${error} />`}
    ${leader && html`<p className="progress"><progress value=${data.progress} max=${1} aria-label="Progress of the job"></progress>
      <span>step ${figure(leader.step)}${known(leader.total_steps) ? ` of ${figure(leader.total_steps)}` : ""}${known(leader.steps_per_second) ? `, ${figure(leader.steps_per_second)} per second` : ""}${left(leader)}</span></p>`}
    ${answer.missing.map((each) => html`<p key=${each} className="soft">${each}</p>`)}
    ${data.troubles.map((each) => html`<p key=${each} className="bad">${each}</p>`)}
    <${Tasks} tasks=${data.tasks} />
  <//>`;
}

function left({ step, total_steps: total, steps_per_second: pace }) {
  return total > step && pace > 0 ? `, about ${duration((total - step) / pace)} left` : "";
}

function Tasks({ tasks }) {
  const number = (text) => ({ text, number: true });
  const head = ["Task", "State", "Node", number("Memory"), number("CPU"), number("Step"), "Doing"];
  const rows = tasks.slice(0, TASKS).map((task) => [
    `${task.type}:${task.index}`,
    html`<${State} state=${task.state} />`,
    task.node ?? NOTHING,
    bytes(task.rss_bytes),
    known(task.cpu_percent) ? `${figure(Math.round(task.cpu_percent))} %` : NOTHING,
    figure(task.progress?.step),
    task.activity,
  ]);
  return html`<${Table} caption="Tasks" head=${head} rows=${rows} />
    ${tasks.length > TASKS && html`<p className="soft">The first ${TASKS} of ${tasks.length.toLocaleString("en")} tasks.</p>`}`;
}
