// The stored records of a job: learning curves and resources of its tasks, and its specification.
import { address, jobPath, useJson } from "./api.js";
import { Choice } from "./choice.js";
import { Curves, fromSamples, fromSummary } from "./curves.js";
import { byName } from "./format.js";
import { html, useMemo, useState } from "./html.js";
import { Empty, Fold, Loading, Problem, Section, Warnings } from "./parts.js";
import { Resources } from "./resources.js";
import { Yaml } from "./specification.js";

const REFRESH = 15; // seconds, while the job runs
const TASKS = 8; // limit of tasks in the charts
const FIRST = 4; // tasks before the user selects some
const NO_METRICS = "The program has reported no metrics. It can report metrics with tony_sdk (report, or track for a loop), in the file that TONY_METRICS_FILE names, or in event files for TensorBoard.";

// Load the history. Return {history, error, loading}, and the tasks of the charts: {samples, tasks, chosen, choose}.
export function useHistory({ application_id: id }, running) {
  const { data: history, error, loading } = useJson(address(jobPath(id, "history")), running ? REFRESH : 0);
  const [selected, choose] = useState(null);
  const tasks = useMemo(() => (history ? [...Object.keys(history.samples), ...history.left_out].sort(byName) : []), [history]);
  const wanted = selected ?? tasks.slice(0, FIRST);
  const more = wanted.some((task) => history?.left_out.includes(task)); // the history of a large job has only some tasks
  const { data: further } = useJson(more ? address(jobPath(id, "history"), { tasks: wanted.join(",") }) : null);
  const samples = useMemo(() => (history ? { ...history.samples, ...further?.samples } : null), [history, further]);
  const chosen = wanted.filter((task) => samples && Object.hasOwn(samples, task));
  return { history, error, loading, samples, tasks, wanted, chosen, choose };
}

export const HistoryProblems = ({ stored: { history, error, loading } }) => html`<div>
  ${loading && html`<${Loading} what="the history of the job" />`}
  ${error && html`<${Problem} title="The stored records cannot be read:" text=${`${error}. This page shows the data in Airflow's database.`} />`}
  <${Warnings} title="Missing data" warnings=${history?.missing ?? []} />
</div>`;

const TaskChoice = ({ tasks, wanted, choose }) => tasks.length > 1 && html`<${Choice} title="Tasks" word="task" names=${tasks} chosen=${wanted} most=${TASKS} onChange=${choose} />`;

// The curves of the chosen tasks, or those of the summary if the store has no samples with metrics.
export function LearningCurves({ summary, stored }) {
  const { samples, chosen } = stored;
  const sources = useMemo(() => {
    const drawn = chosen.map((task) => fromSamples(samples[task], task, summary.submitted_ms)).filter((each) => each.metrics.length);
    return drawn.length ? drawn : [fromSummary(summary, "leader")];
  }, [samples, summary, chosen.join("\n")]);
  return html`<${Curves} sources=${sources} empty=${NO_METRICS}><${TaskChoice} ...${stored} /><//>`;
}

export function ResourcesOverTime({ stored }) {
  const { history, samples, chosen } = stored;
  if (!samples) return null;
  return html`<h3>Over time</h3>
    <${TaskChoice} ...${stored} />
    <${Resources} metrics=${history.metrics} samples=${samples} tasks=${chosen} />`;
}

export function Specification({ history }) {
  const { specification, given, overrides } = history;
  if (!specification) return html`<${Empty}>The store has no specification of this job.<//>`;
  return html`<div>
    ${overrides && html`<${Fold} title="Overrides" open=${true}>${() => html`<${Yaml} value=${overrides} label="Overrides" />`}<//>`}
    ${given && html`<${Fold} title="As written">${() => html`<${Yaml} value=${given} label="Specification as written" />`}<//>`}
    <${Fold} title="As run, with all defaults">${() => html`<${Yaml} value=${specification} label="Specification as run, with all defaults" />`}<//>
  </div>`;
}
