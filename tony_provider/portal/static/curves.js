// Learning curves: metrics over steps or time, of tasks of one job or of several jobs.
import { Chart } from "./chart.js";
import { Choice } from "./choice.js";
import { duration, DURATION_STEPS, figure, shortened } from "./format.js";
import { html, useMemo } from "./html.js";
import { Empty, Switch } from "./parts.js";
import { useQuery } from "./query.js";
import { series } from "./series.js";

const METRICS = 12; // charts at a time
const FIRST = 4; // of them, before anything is chosen

// `sources`: [{label, metrics: () => names, curve: (metric) => {steps, seconds, values} or null}]. What is chosen stands
// in the address: `metric`, once for each, and `over`.
export function Curves({ sources, empty }) {
  const [query, setQuery] = useQuery();
  const names = useMemo(() => [...new Set(sources.flatMap((each) => each.metrics))], [sources]);
  const asked = query.getAll("metric").filter((name) => names.includes(name));
  const chosen = asked.length || query.has("metric") ? asked.slice(0, METRICS) : names.slice(0, FIRST);
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
    <${Switch} label="X axis" options=${[["steps", "steps"], ["time", "time since submission"]]} value=${over} onChange=${turn} />
    <${Choice} title="Metrics" word="metric" names=${names} chosen=${chosen} most=${METRICS} onChange=${choose} />
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
  const x = over === "time" ? { label: "time", write: duration, steps: DURATION_STEPS, tell: (seconds) => `after ${duration(seconds)}` } : { label: "step", write: figure };
  return html`<${Chart} title=${shortened(metric, 120)} all=${all} x=${x} />`;
}

// Of a summary: the leader's own, thinned out.
export function fromSummary(summary, label) {
  const byName = new Map(summary.curves.map((each) => [each.metric, each]));
  return { label, metrics: [...byName.keys()], curve: (metric) => byName.get(metric) ?? null };
}

// Of a task's samples from the store.
export function fromSamples(samples, label, submittedMs) {
  const seconds = samples.time_ms.map((time) => (time - submittedMs) / 1000);
  const metrics = samples.metrics ?? {};
  const curve = (name) => (Object.hasOwn(metrics, name) ? { steps: samples.step ?? [], seconds, values: metrics[name] } : null);
  return { label, metrics: Object.keys(metrics), curve };
}
