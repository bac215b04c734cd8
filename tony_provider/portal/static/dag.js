// The tab on a DAG: its trainings by run date.
import { DatesPage } from "./dates_page.js";
import { html } from "./html.js";
import { Page } from "./parts.js";
import { loaded } from "./style.js";

// Modules that these modules import, so that the browser loads all of them at once.
import "./api.js";
import "./chart.js";
import "./choice.js";
import "./format.js";
import "./plot.js";
import "./query.js";
import "./routes.js";
import "./series.js";
import "./stale.js";
import "./states.js";
import "./ticks.js";
import "./vendor/htm.js";
import "./vendor/uPlot.js";

await loaded;

const Trainings = ({ dagId }) => html`<${Page}><${DatesPage} key=${dagId} dagId=${dagId} /><//>`;

globalThis.AirflowPlugin = Trainings; // Airflow reads this name after the import
