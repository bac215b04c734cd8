// URLs of the portal's and Airflow's pages, for Airflow's router.

import { connectionId } from "./api.js";

const PORTAL = "/plugin/training-jobs"; // PORTAL_ROUTE in links/job_links.py

function within(query) {
  const conn_id = connectionId();
  const params = new URLSearchParams({ ...query, ...(conn_id && { conn_id }) });
  return params.size ? `${PORTAL}?${params}` : PORTAL;
}

export const toJobs = (query = {}) => within(query);
export const toJob = (applicationId) => within({ job: applicationId });
export const toComparison = (ids) => within({ compare: ids.join(",") });
export const toRun = (row) => `/dags/${encodeURIComponent(row.dag_id)}/runs/${encodeURIComponent(row.run_id)}`;
export const toDates = (dagId) => `/dags/${encodeURIComponent(dagId)}/plugin/trainings`;

export function toTaskInstance(row) {
  const mapped = row.map_index >= 0 ? `/mapped/${row.map_index}` : "";
  return `${toRun(row)}/tasks/${encodeURIComponent(row.task_id)}${mapped}`;
}
