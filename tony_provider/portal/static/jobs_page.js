// The list of jobs, with filters that stand in the address.
import { address, useJson } from "./api.js";
import { ColumnChoice, MOST_COLUMNS } from "./columns.js";
import { JobsTable } from "./jobs_table.js";
import { Filters, FILTERS } from "./filters.js";
import { count } from "./format.js";
import { html, useNavigate, useRef } from "./html.js";
import { Announcement, Empty, Loading, Problem } from "./parts.js";
import { useQuery } from "./query.js";
import { toComparison } from "./routes.js";

const PAGE = 50; // jobs
const COMPARED = 8; // at most
const RENEWED = 15; // seconds

export function JobsPage() {
  const [query, setQuery] = useQuery();
  const offset = Math.max(0, Math.floor(Number(query.get("offset")) || 0));
  const order = query.get("order") ?? "-submitted";
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const chosen = query.getAll("chosen").slice(0, COMPARED);
  const columns = query.getAll("columns").slice(0, MOST_COLUMNS);
  const asked = { ...filters, limit: PAGE, offset, order, columns };
  const { data, error, loading } = useJson(address("jobs", asked), RENEWED);
  const known = useRef([]); // also while a list with other columns loads
  if (data) known.current = data.columns;
  const change = (values) => setQuery((old) => changed(old, values));
  const choose = (ids) => setQuery((old) => changed(old, { chosen: ids }), { replace: true });
  const show = (some) => setQuery((old) => changed(old, { columns: some }), { replace: true });
  const filtered = FILTERS.some((name) => filters[name] !== "");
  return html`<div>
    <header><h1>Training jobs</h1></header>
    <${Filters} filters=${filters} onChange=${(values) => change({ ...values, offset: null })} />
    <${ColumnChoice} columns=${known.current} chosen=${columns} onChoose=${show} />
    ${error && html`<${Problem} title="The jobs cannot be listed:" text=${error} />`}
    ${data?.problem && html`<${Problem} title="The list may be incomplete:" text=${data.problem} />`}
    ${loading && html`<${Loading} what="jobs" />`}
    ${data && data.jobs.length === 0 && html`<${NoJobs} filtered=${filtered} beyond=${offset > 0} onChange=${change} />`}
    ${data && data.jobs.length > 0 &&
    html`<${JobsTable} jobs=${data.jobs} columns=${columns} chosen=${chosen} most=${COMPARED} order=${order} onChoose=${choose} onOrder=${(value) => change({ order: value, offset: null })} />
      <${Paging} offset=${offset} total=${data.total} onChange=${(value) => change({ offset: value || null })} />`}
    ${data && html`<${Announcement} text=${`${count(data.total, "job")} found`} />`}
    ${chosen.length > 0 && html`<${Chosen} chosen=${chosen} onChoose=${choose} />`}
  </div>`;
}

// The address's query with other values: null and "" take a name away, a list gives it several times.
function changed(old, values) {
  const next = new URLSearchParams(old);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    const all = Array.isArray(value) ? value : [value];
    for (const each of all) if (each !== null && each !== "") next.append(name, each);
  }
  return next;
}

const NoJobs = ({ filtered, beyond, onChange }) => html`<${Empty}>
  ${filtered
    ? html`<p>No job that you may read matches these filters.</p><button type="button" onClick=${() => onChange(Object.fromEntries([...FILTERS, "offset"].map((name) => [name, null])))}>Show all jobs</button>`
    : beyond
      ? html`<p>There are no older jobs.</p><button type="button" onClick=${() => onChange({ offset: null })}>Show the newest jobs</button>`
      : html`<p>There are no training jobs in the DAGs that you may read.</p><p className="soft">The list shows a job as soon as a TonyTrainOperator has submitted it.</p>`}
<//>`;

function Paging({ offset, total, onChange }) {
  const last = Math.min(offset + PAGE, total);
  return html`<nav className="paging" aria-label="Pages of the list">
    <button type="button" disabled=${offset === 0} onClick=${() => onChange(Math.max(0, offset - PAGE))}>Newer</button>
    <span>${(offset + 1).toLocaleString("en")}–${last.toLocaleString("en")} of ${total.toLocaleString("en")}</span>
    <button type="button" disabled=${last >= total} onClick=${() => onChange(offset + PAGE)}>Older</button>
  </nav>`;
}

function Chosen({ chosen, onChoose }) {
  const navigate = useNavigate();
  return html`<div className="chosen" role="region" aria-label="Jobs selected for comparison">
    <span role="status">${chosen.length} of at most ${COMPARED} jobs selected</span>
    <button type="button" className="main" disabled=${chosen.length < 2} onClick=${() => navigate(toComparison(chosen))}>Compare</button>
    <button type="button" onClick=${() => onChoose([])}>Clear selection</button>
  </div>`;
}
