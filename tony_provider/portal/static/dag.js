// The tab on a DAG: its trainings over the dates of their runs.
import { DatesPage } from "./dates_page.js";
import { html } from "./html.js";
import { Page } from "./parts.js";
import { loaded } from "./style.js";

// What these need, too: all is asked for at once, and not one level after the other.
import "./api.js";
import "./chart.js";
import "./choice.js";
import "./format.js";
import "./query.js";
import "./routes.js";
import "./series.js";
import "./vendor/htm.js";
import "./vendor/uPlot.js";

await loaded;

const Trainings = ({ dagId }) => html`<${Page}><${DatesPage} key=${dagId} dagId=${dagId} /><//>`;

globalThis.AirflowPlugin = Trainings; // where Airflow looks for it, right after the import
