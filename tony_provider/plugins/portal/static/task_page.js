// The tab on a task instance: the page of its newest job; its other tries are linked there.
import { address, useJson } from "./api.js";
import { html } from "./html.js";
import { JobPage } from "./job_page.js";
import { Empty, Loading, Problem } from "./parts.js";

const RENEWED = 10; // seconds; a task that has just begun has no job yet
const MOST = 200; // jobs of one run's task, over tries and map indexes

export function TaskPage({ dagId, runId, taskId, mapIndex }) {
  const index = Number(mapIndex ?? -1);
  const asked = { dag_id: dagId, run_id: runId, task_id: taskId, map_index: index, limit: MOST };
  const { data, error, loading } = useJson(address("jobs", asked), RENEWED);
  const own = (job) => job.dag_id === dagId && job.run_id === runId && job.task_id === taskId && job.map_index === index;
  const newest = data?.jobs.find(own);
  if (loading) return html`<${Loading} what="the jobs of this task" />`;
  if (error && !data) return html`<${Problem} title="The jobs of this task are not known:" text=${error} />`;
  if (!newest) return html`<${Empty}><p>This task has submitted no training job, or not yet.</p><//>`;
  return html`<${JobPage} key=${newest.application_id} applicationId=${newest.application_id} />`;
}
