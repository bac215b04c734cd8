// The page in Airflow's navigation: the list of jobs, one job, or a comparison, depending on the URL.
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

globalThis.AirflowPlugin = TrainingJobs; // Airflow reads this name after the import
