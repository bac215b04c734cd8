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
  if (!use.length) return html`<${Empty}>It is not known what this job asked for and used.<//>`;
  const head = ["Type", number("Tasks"), number("Most memory"), number("Share"), "By", number("Cores, mean"), number("GPUs, mean"), number("Held"), number("In use")];
  return html`<${Table} caption="Asked and used, by task type" head=${head} rows=${use.map(row)} />`;
}
