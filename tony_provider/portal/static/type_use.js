// The requested and used resources of a job, by task type.
import { bytes, duration, known, NOTHING, percent, short } from "./format.js";
import { html } from "./html.js";
import { Empty, Table } from "./parts.js";

const number = (text) => ({ text, number: true });

function row(use) {
  const cores = known(use.mean_cpu_percent) ? short(use.mean_cpu_percent / 100) : NOTHING;
  const gpus = known(use.mean_gpu_percent) ? `${short(use.mean_gpu_percent)} %` : NOTHING;
  return [
    use.type,
    use.tasks.toLocaleString("en"),
    `${bytes(use.most_rss_bytes)} of ${bytes(use.memory_bytes)}`,
    percent(use.most_rss_bytes, use.memory_bytes),
    use.most_rss_task ?? NOTHING,
    `${cores} of ${use.vcores}`,
    use.gpus ? `${gpus} of ${use.gpus}` : NOTHING,
    duration(use.container_seconds),
    duration(use.used_seconds),
  ];
}

export function TypeUse({ use }) {
  if (!use.length) return html`<${Empty}>The requested and used resources of this job are unknown.<//>`;
  const head = ["Task type", number("Tasks"), number("Peak memory"), number("Share"), "Task with the peak", number("Mean CPU cores"), number("Mean GPU use"), number("Allocated time"), number("Time in use")];
  return html`<${Table} caption="Requested and used resources, by task type" head=${head} rows=${use.map(row)} />`;
}
