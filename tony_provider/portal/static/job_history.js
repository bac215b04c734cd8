// The part of a job's page that its store has: time line, curves of all tasks, resources, specification, logs.
import { address, jobPath, useJson } from "./api.js";
import { Choice } from "./choice.js";
import { Curves, fromSamples, fromSummary } from "./curves.js";
import { byName } from "./format.js";
import { html, useMemo, useState } from "./html.js";
import { Logs } from "./logs.js";
import { Empty, Fold, Loading, Problem, Section } from "./parts.js";
import { Resources } from "./resources.js";
import { Yaml } from "./specification.js";
import { TimeLine } from "./time_line.js";

const RENEWED = 15; // seconds, while it runs
const TASKS = 8; // drawn at a time
const FIRST = 4; // before any are chosen

export function JobHistory({ summary, running }) {
  const id = summary.application_id;
  const { data: history, error, loading } = useJson(address(jobPath(id, "history")), running ? RENEWED : 0);
  return html`<div>
    ${loading && html`<${Loading} what="the history of the job" />`}
    ${error && html`<${Problem} title="The store is unreachable:" text=${`${error}. This page shows the data in Airflow's database.`} />`}
    ${history?.missing?.length > 0 && html`<${Missing} missing=${history.missing} />`}
    ${history && html`<${Section} title="Timeline"><${TimeLine} events=${history.events} submittedMs=${summary.submitted_ms} finishedMs=${summary.finished_ms} running=${running} /><//>`}
    <${Series} summary=${summary} history=${history} />
    ${history && html`<${Section} title="Specification"><${Specification} history=${history} /><//>`}
    ${!error && html`<${Section} title="Logs"><${Fold} title="Output of the tasks" open=${Boolean(summary.reason)}>${() => html`<${Logs} applicationId=${id} running=${running ? Object.keys(history?.samples ?? {}) : []} preferred=${summary.failed_task} />`}<//><//>`}
  </div>`;
}

const Missing = ({ missing }) => html`<${Section} title="Missing data" className="warnings"><ul>${missing.slice(0, 50).map((each, at) => html`<li key=${at}>${each}</li>`)}</ul><//>`;

// Curves and resources of the tasks that are chosen; of the summary alone while the store says nothing.
function Series({ summary, history }) {
  const [asked, setAsked] = useState(null);
  const tasks = useMemo(() => (history ? [...Object.keys(history.samples), ...history.left_out].sort(byName) : []), [history]);
  const wanted = asked ?? tasks.slice(0, FIRST);
  const more = wanted.some((task) => history?.left_out.includes(task)); // a job of many tasks sends a part of them
  const { data: further } = useJson(more ? address(jobPath(summary.application_id, "history"), { tasks: wanted.join(",") }) : null);
  const samples = useMemo(() => (history ? { ...history.samples, ...further?.samples } : null), [history, further]);
  const chosen = wanted.filter((task) => samples && Object.hasOwn(samples, task));
  const sources = useMemo(() => {
    const drawn = chosen.map((task) => fromSamples(samples[task], task, summary.submitted_ms)).filter((each) => each.metrics.length);
    return drawn.length ? drawn : [fromSummary(summary, "leader")];
  }, [samples, summary, chosen.join("\n")]);
  return html`<div>
    ${tasks.length > 1 && html`<${Section} title="Tasks in the charts"><${Choice} title="Tasks" word="task" names=${tasks} chosen=${wanted} most=${TASKS} onChange=${setAsked} /><//>`}
    <${Section} title="Learning curves"><${Curves} sources=${sources} empty="The program has reported no metrics. It can report metrics with tony_sdk (report, or track for a loop), in the file that TONY_METRICS_FILE names, or in event files for TensorBoard." /><//>
    ${samples && html`<${Section} title="Resources over time"><${Resources} metrics=${history.metrics} samples=${samples} tasks=${chosen} /><//>`}
  </div>`;
}

function Specification({ history }) {
  const { specification, given, overrides } = history;
  if (!specification) return html`<${Empty}>The specification of this job is not stored.<//>`;
  return html`<div>
    ${overrides && html`<${Fold} title="Overrides" open=${true}>${() => html`<${Yaml} value=${overrides} label="Overrides" />`}<//>`}
    ${given && html`<${Fold} title="As written">${() => html`<${Yaml} value=${given} label="Specification as written" />`}<//>`}
    <${Fold} title="As run, with all defaults">${() => html`<${Yaml} value=${specification} label="Specification as run, with all defaults" />`}<//>
  </div>`;
}
