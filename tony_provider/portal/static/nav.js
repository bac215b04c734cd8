// The page in Airflow's navigation: the jobs, one of them, or several side by side, as the address says.
import { ComparePage } from "./compare_page.js";
import { html, useSearchParams } from "./html.js";
import { JobPage } from "./job_page.js";
import { JobsPage } from "./jobs_page.js";
import { Page } from "./parts.js";
import { loaded } from "./style.js";

await loaded;

function TrainingJobs() {
  const [query] = useSearchParams();
  const job = query.get("job");
  const compared = query.get("compare");
  if (job) return html`<${Page}><${JobPage} key=${job} applicationId=${job} back=${true} /><//>`;
  if (compared) return html`<${Page}><${ComparePage} key=${compared} ids=${compared.split(",")} /><//>`;
  return html`<${Page}><${JobsPage} /><//>`;
}

globalThis.AirflowPlugin = TrainingJobs; // where Airflow looks for it, right after the import
