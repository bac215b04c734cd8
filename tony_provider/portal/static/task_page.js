// The tab on a task instance: the page of its newest job; its other tries are linked there.
import { address, useJson } from "./api.js";
import { moment } from "./format.js";
import { html } from "./html.js";
import { JobPage } from "./job_page.js";
import { Empty, Loading, Problem } from "./parts.js";

const RENEWED = 10; // seconds; a task that has just begun has no job yet

export function TaskPage({ dagId, runId, taskId, mapIndex }) {
  const asked = { dag_id: dagId, run_id: runId, task_id: taskId, map_index: mapIndex ?? -1, limit: 1 };
  const { data, error, loading } = useJson(address("jobs", asked), RENEWED);
  const { data: told } = useJson(address("refusal", { dag_id: dagId, run_id: runId, task_id: taskId, map_index: mapIndex ?? -1 }), RENEWED);
  const newest = data?.jobs[0]; // the newest comes first
  const refusal = told?.refusal && told.refusal.try_number > (newest?.try_number ?? 0) ? told.refusal : null;
  if (loading) return html`<${Loading} what="the jobs of this task" />`;
  if (error && !data) return html`<${Problem} title="The jobs of this task cannot be loaded:" text=${error} />`;
  if (!newest && !refusal) return html`<${Empty}><p>This task has not submitted a training job yet.</p><//>`;
  return html`<div>
    ${refusal && html`<${Refusal} ...${refusal} />`}
    ${newest && html`<${JobPage} key=${newest.application_id} applicationId=${newest.application_id} />`}
  </div>`;
}

const Refusal = ({ text, try_number: number, time_ms: time }) => html`<div className="problem" role="alert">
  <strong>Try ${number} submitted no job, because its job was rejected at ${moment(time, { seconds: true })}:</strong>
  <pre>${text}</pre>
</div>`;
