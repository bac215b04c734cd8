// The tab on a task instance: its newest job.
import { html } from "./html.js";
import { Page } from "./parts.js";
import { loaded } from "./style.js";
import { TaskPage } from "./task_page.js";

await loaded;

function Training({ dagId, runId, taskId, mapIndex }) {
  const key = [dagId, runId, taskId, mapIndex].join("\n");
  return html`<${Page}><${TaskPage} key=${key} dagId=${dagId} runId=${runId} taskId=${taskId} mapIndex=${mapIndex} /><//>`;
}

globalThis.AirflowPlugin = Training; // Airflow reads this name after the import
