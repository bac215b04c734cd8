// Learning curves: metrics over steps or time, for tasks of one job or for several jobs.
import { Chart } from "./chart.js";
import { Choice } from "./choice.js";
import { duration, shortened } from "./format.js";
import { html, useMemo } from "./html.js";
import { Empty, Switch } from "./parts.js";
import { useQuery } from "./query.js";
import { series } from "./series.js";
import { COUNT, DURATION } from "./ticks.js";

const METRICS = 12; // limit of charts
const FIRST = 4; // charts before the user selects metrics
const STEP = { label: "step", ...COUNT };
const TIME = { label: "time", ...DURATION, describe: (seconds) => `after ${duration(seconds)}` };

// `sources`: [{label, metrics: names, curve: (metric) => {steps, seconds, values} or null}]. The URL contains the
// selection: `metric`, once for each metric, and `over`. `children`: a further selector.
export function Curves({ sources, empty, children }) {
  const [query, setQuery] = useQuery();
  const names = useMemo(() => [...new Set(sources.flatMap((each) => each.metrics))], [sources]);
  const selected = query.getAll("metric").filter((name) => names.includes(name));
  const chosen = selected.length || query.has("metric") ? selected.slice(0, METRICS) : names.slice(0, FIRST);
  const over = query.get("over") === "time" ? "time" : "steps";
  const set = (change) => setQuery((old) => change(new URLSearchParams(old)), { replace: true });
  const choose = (metrics) => set((next) => {
    next.delete("metric");
    for (const name of metrics.length ? metrics : [""]) next.append("metric", name);
    return next;
  });
  const turn = (value) => set((next) => {
    next.set("over", value);
    return next;
  });
  if (!names.length) return html`<${Empty}>${empty}<//>`;
  return html`<div>
    <div className="selectors">
      <${Switch} label="Horizontal axis" options=${[["steps", "Steps"], ["time", "Time since submission"]]} value=${over} onChange=${turn} />
      <${Choice} title="Metrics" word="metric" names=${names} chosen=${chosen} most=${METRICS} onChange=${choose} />
      ${children}
    </div>
    <div className="charts">
      ${chosen.map((metric) => html`<${MetricChart} key=${metric} metric=${metric} sources=${sources} over=${over} />`)}
    </div>
  </div>`;
}

function MetricChart({ metric, sources, over }) {
  const all = useMemo(() => {
    const drawn = [];
    for (const source of sources) {
      const curve = source.curve(metric);
      if (curve) drawn.push(series(source.label, over === "time" ? curve.seconds : curve.steps, curve.values));
    }
    return drawn;
  }, [metric, sources, over]);
  return html`<${Chart} title=${shortened(metric, 120)} all=${all} x=${over === "time" ? TIME : STEP} />`;
}

// The curves of a summary: those of the leader, with a limited number of points.
export function fromSummary(summary, label) {
  const byName = new Map(summary.curves.map((each) => [each.metric, each]));
  return { label, metrics: [...byName.keys()], curve: (metric) => byName.get(metric) ?? null };
}

// The curves of a task's samples from the store.
export function fromSamples(samples, label, submittedMs) {
  const seconds = samples.time_ms.map((time) => (time - submittedMs) / 1000);
  const metrics = samples.metrics ?? {};
  const curve = (name) => (Object.hasOwn(metrics, name) ? { steps: samples.step ?? [], seconds, values: metrics[name] } : null);
  return { label, metrics: Object.keys(metrics), curve };
}
