// The table of jobs: a row for each, with a box to choose it for comparison.
import { columnValue, isNumber, nameOf } from "./columns.js";
import { duration, figure, hours, known, runDate, moment, NOTHING, shortened, ZONE } from "./format.js";
import { html } from "./html.js";
import { State, To } from "./parts.js";
import { toDates, toJob, toTaskInstance } from "./routes.js";

// Text, whether it is a number, what the API orders it by.
const COLUMNS = [
  ["State", false, "state"],
  ["Job", false, "name"],
  ["Task", false, "task"],
  ["Run date", false, "date"],
  ["Submitted", false, "submitted"],
  ["Duration", true, "duration"],
  ["Waiting", true, "waiting"],
  ["Step", true, "step"],
  ["Restarts", true, "restarts"],
  ["Memory (GB h)", true, "memory"],
  ["GPU h", true, "gpus"],
  ["User", false, "user"],
];

const FIRST = 4; // columns before those of metrics and parameters

// `columns`: of metrics and parameters.
export function JobsTable({ jobs, columns, chosen, most, order, onChoose, onOrder }) {
  const hasGpus = order.endsWith("gpus") || jobs.some((job) => job.gpu_hours > 0);
  const shown = COLUMNS.filter(([, , by]) => hasGpus || by !== "gpus");
  const own = columns.map((each) => [shortened(nameOf(each), 40), isNumber(jobs, each), each]);
  return html`<div className="wide" role="region" aria-label="Training jobs" tabIndex=${0}>
    <table className="jobs">
      <caption className="unseen">Training jobs; times in ${ZONE}</caption>
      <thead><tr>
        <th scope="col"><span className="unseen">Compare</span></th>
        ${[...shown.slice(0, FIRST), ...own, ...shown.slice(FIRST)].map(([text, number, by]) => html`<${Head} key=${by} ...${{ text, number, by, order, onOrder }} />`)}
      </tr></thead>
      <tbody>${jobs.map((job) => html`<${Row} key=${job.application_id} ...${{ job, own, hasGpus, chosen, most, onChoose }} />`)}</tbody>
    </table>
  </div>`;
}

function Head({ text, number, by, order, onOrder }) {
  const sorted = order === by ? "ascending" : order === `-${by}` ? "descending" : undefined;
  // Of a metric, the lowest values come first, and of other columns the highest or newest.
  const [first, second] = by.startsWith("metric:") ? [by, `-${by}`] : [`-${by}`, by];
  const arrow = { ascending: " ▲", descending: " ▼" }[sorted] ?? "";
  return html`<th scope="col" className=${number ? "number" : undefined} aria-sort=${sorted}>
    <button type="button" className="plain" onClick=${() => onOrder(order === first ? second : first)}>${text}${arrow}</button>
  </th>`;
}

function Row({ job, own, hasGpus, chosen, most, onChoose }) {
  const isChosen = chosen.includes(job.application_id);
  const toggle = () => onChoose(isChosen ? chosen.filter((id) => id !== job.application_id) : [...chosen, job.application_id]);
  const name = job.name || job.application_id;
  return html`<tr className=${isChosen ? "chosen-row" : undefined}>
    <td><input type="checkbox" aria-label=${`Compare ${name}, ${job.application_id}`} checked=${isChosen} disabled=${!isChosen && chosen.length >= most} onChange=${toggle} /></td>
    <td><${State} state=${job.state} /></td>
    <th scope="row"><${To} to=${toJob(job.application_id)}>${shortened(name, 60)}<//>${[job.cause, job.reason, job.application_id].filter(Boolean).join("\n").split("\n").map((line, at) => html`<small key=${at}>${shortened(line, 120)}</small>`)}</th>
    <td>${job.dag_id
      ? html`<${To} to=${toTaskInstance(job)}>${job.task_id}${job.map_index >= 0 ? ` [${job.map_index}]` : ""}<//>${job.try_number > 1 && ` (try ${job.try_number})`}<small><${To} to=${toDates(job.dag_id)}>${job.dag_id}<//></small>`
      : html`${job.task_id}<small>${job.run_id}</small>`}</td>
    <td>${runDate(job.run_date)}</td>
    ${own.map(([, number, by]) => html`<td key=${by} className=${number ? "number" : undefined}>${columnValue(job, by)}</td>`)}
    <td>${moment(job.submitted_ms)}</td>
    <td className="number">${duration(job.duration_s)}</td>
    <td className="number">${duration(job.waiting_s)}</td>
    <td className="number">${known(job.step) ? `${figure(job.step)}${known(job.total_steps) ? ` of ${figure(job.total_steps)}` : ""}` : NOTHING}</td>
    <td className="number">${figure(job.restarts)}</td>
    <td className="number">${hours(job.memory_gb_hours)}</td>
    ${hasGpus && html`<td className="number">${hours(job.gpu_hours)}</td>`}
    <td>${job.user}</td>
  </tr>`;
}
