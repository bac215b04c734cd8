// URLs of the portal's and Airflow's pages, for Airflow's router.

const PORTAL = "/plugin/training-jobs"; // PORTAL_ROUTE in links/job_links.py

const within = (query) => `${PORTAL}?${new URLSearchParams(query)}`;

export const toJobs = (query = {}) => (Object.keys(query).length ? within(query) : PORTAL);
export const toJob = (applicationId) => within({ job: applicationId });
export const toComparison = (ids) => within({ compare: ids.join(",") });
export const toRun = (row) => `/dags/${encodeURIComponent(row.dag_id)}/runs/${encodeURIComponent(row.run_id)}`;
export const toDates = (dagId) => `/dags/${encodeURIComponent(dagId)}/plugin/trainings`;

export function toTaskInstance(row) {
  const mapped = row.map_index >= 0 ? `/mapped/${row.map_index}` : "";
  return `${toRun(row)}/tasks/${encodeURIComponent(row.task_id)}${mapped}`;
}
