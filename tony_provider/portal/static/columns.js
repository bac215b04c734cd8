// Metrics and parameters as columns of the list of jobs. The API names them metric:loss and param:lr.
import { Choice } from "./choice.js";
import { figure, known, NOTHING, numeric, shortened } from "./format.js";
import { html } from "./html.js";
import { Fold } from "./parts.js";

export const MOST_COLUMNS = 20;
const KINDS = { metric: ["Metrics", "metric"], param: ["Parameters", "parameter"] };

const kindOf = (column) => column.slice(0, column.indexOf(":"));
export const nameOf = (column) => column.slice(column.indexOf(":") + 1);

// `columns`: those that the listed jobs have; `chosen`: those that are shown.
export function ColumnChoice({ columns, chosen, onChoose }) {
  const all = [...new Set([...chosen, ...columns])];
  if (!all.length) return null;
  return html`<${Fold} title=${`Columns: ${chosen.length} of ${all.length} metrics and parameters`}>${() =>
    Object.entries(KINDS).map(([kind, [title, word]]) => {
      const of = (some) => some.filter((each) => kindOf(each) === kind).map(nameOf);
      const others = chosen.filter((each) => kindOf(each) !== kind);
      return of(all).length > 0 && html`<${Choice} key=${kind} title=${title} word=${word} names=${of(all)} chosen=${of(chosen)} most=${MOST_COLUMNS - others.length} onChange=${(names) => onChoose([...others, ...names.map((name) => `${kind}:${name}`)])} />`;
    })}<//>`;
}

// A parameter as it was given, a metric as a figure.
export function columnValue(job, column) {
  const value = job.columns[column];
  if (!known(value)) return NOTHING;
  return kindOf(column) === "metric" ? figure(value) : shortened(String(value), 60);
}

export const isNumber = (jobs, column) => jobs.every(({ columns }) => !known(columns[column]) || !Number.isNaN(numeric(columns[column])));
