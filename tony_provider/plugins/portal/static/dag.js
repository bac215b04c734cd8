// The tab on a DAG: its trainings over their logical dates.
import { DatesPage } from "./dates_page.js";
import { html } from "./html.js";
import { Page } from "./parts.js";
import { loaded } from "./style.js";

await loaded;

const Trainings = ({ dagId }) => html`<${Page}><${DatesPage} key=${dagId} dagId=${dagId} /><//>`;

globalThis.AirflowPlugin = Trainings; // where Airflow looks for it, right after the import
