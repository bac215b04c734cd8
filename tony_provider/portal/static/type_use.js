// What was asked for and used, by task type.
import { bytes, duration, figure, known, NOTHING, percent } from "./format.js";
import { html } from "./html.js";
import { Empty, Table } from "./parts.js";

const number = (text) => ({ text, number: true });

function row(use) {
  const processors = known(use.mean_cpu_percent) ? `${figure(use.mean_cpu_percent / 100)} of ${use.vcores}` : `${NOTHING} of ${use.vcores}`;
  const graphics = use.gpus ? `${known(use.mean_gpu_percent) ? `${figure(use.mean_gpu_percent)} %` : NOTHING} of ${use.gpus}` : NOTHING;
  return [
    use.type,
    use.tasks.toLocaleString("en"),
    `${bytes(use.most_rss_bytes)} of ${bytes(use.memory_bytes)}`,
    percent(use.most_rss_bytes, use.memory_bytes),
    use.most_rss_task ?? NOTHING,
    processors,
    graphics,
    duration(use.container_seconds),
    duration(use.used_seconds),
  ];
}

export function TypeUse({ use }) {
  if (!use.length) return html`<${Empty}>The requested and used resources of this job are unknown.<//>`;
  const head = ["Type", number("Tasks"), number("Peak memory"), number("Share"), "Peak task", number("Mean CPU cores"), number("Mean GPU use"), number("Allocated time"), number("Time in use")];
  return html`<${Table} caption="Requested and used resources, by task type" head=${head} rows=${use.map(row)} />`;
}
