// Orders to a running job: a button and the command of each order, and a confirmation before an order is sent.
import { address, jobPath, postJson, useJson } from "./api.js";
import { Command } from "./command.js";
import { html, useEffect, useId, useRef, useState } from "./html.js";
import { Problem, Section } from "./parts.js";

const RENEWED = 3600; // seconds; the token of the answer is valid for longer

// `state`: the state of the job in its newest status, null without a status. `counts`: its number of tasks by type.
export function Actions({ applicationId, state, counts }) {
  const { data, error } = useJson(address(jobPath(applicationId, "orders")), RENEWED);
  const [open, setOpen] = useState(null);
  const [result, setResult] = useState(null);
  if (error) return html`<${Section} title="Actions"><${Problem} title="The actions cannot be loaded:" text=${error} /><//>`;
  if (!data) return null;
  if (data.reason) return html`<${Section} title="Actions"><p className="soft">${data.reason}</p><//>`;
  const resizable = Object.entries(data.resizable);
  const useful = (order) => (state === null ? order.name === "stop" : order.states.includes(state));
  const orders = data.orders.filter((each) => useful(each) && (each.name !== "resize" || resizable.length));
  if (!orders.length && !result) return null;
  const close = (lines) => {
    setOpen(null);
    setResult(lines);
  };
  return html`<${Section} title="Actions">
    ${data.missing.map((each) => html`<p key=${each} className="soft">Resize is not offered, because the job's specification cannot be read: ${each}</p>`)}
    <ul className="actions">${orders.map(
      (order) => html`<li key=${order.name}>
        <button type="button" aria-expanded=${open === order.name} onClick=${() => { setResult(null); setOpen(open === order.name ? null : order.name); }}>${order.title} …</button>
        <${Command} text=${order.name === "resize" ? `${order.command} ${words(starting(resizable, counts))}` : order.command} label=${`Command: ${order.title}`} />
        ${open === order.name && html`<${Confirmation} key=${order.name} ...${{ applicationId, order, token: data.token, counts: starting(resizable, counts), limits: data.resizable, close }} />`}
      </li>`,
    )}</ul>
    <div role="status">${result?.map((each) => html`<p key=${each} className="good">${each}</p>`)}</div>
  <//>`;
}

const starting = (resizable, counts) => Object.fromEntries(resizable.map(([type, [least]]) => [type, counts[type] ?? least]));

const words = (counts) => Object.entries(counts).map(([type, number]) => `${type}=${number}`).join(" ");

function Confirmation({ applicationId, order, token, counts, limits, close }) {
  const [grace, setGrace] = useState("");
  const [numbers, setNumbers] = useState(counts);
  const [problem, setProblem] = useState(null);
  const [sending, setSending] = useState(false);
  const first = useRef(null);
  const about = useId();
  useEffect(() => first.current?.focus(), []);
  const stops = order.name === "stop";
  const resizes = order.name === "resize";
  const options = stops && grace !== "" ? ` --grace ${grace}s` : resizes ? ` ${words(numbers)}` : "";
  const send = async (event) => {
    event.preventDefault();
    setSending(true);
    setProblem(null);
    try {
      const body = { token, ...(stops && grace !== "" ? { grace: Number(grace) } : {}), ...(resizes ? { tasks: numbers } : {}) };
      close((await postJson(address(jobPath(applicationId, "orders", order.name)), body)).lines);
    } catch (error) {
      setProblem(error.message);
      setSending(false);
    }
  };
  return html`<form className="confirmation" role="group" aria-labelledby=${about} onSubmit=${send} onKeyDown=${(event) => event.key === "Escape" && close(null)}>
    <p id=${about}>${order.effect}</p>
    ${stops && html`<${NumberField} label="Grace period in seconds (empty: the job's own)" value=${grace} least=${0} most=${86400} required=${false} onChange=${setGrace} />`}
    ${resizes && Object.entries(limits).map(([type, [least, most]]) => html`<${NumberField} key=${type} label=${`Tasks of type ${type} (${least} to ${most})`} value=${numbers[type]} least=${least} most=${most} onChange=${(text) => setNumbers({ ...numbers, [type]: Number(text) })} />`)}
    ${options && html`<${Command} text=${order.command + options} label="Command with these values" />`}
    ${problem && html`<${Problem} title="The order was not carried out:" text=${problem} />`}
    <div className="buttons">
      <button ref=${first} type="submit" className=${stops ? "danger" : "main"} disabled=${sending}>${sending ? "Sending …" : order.title}</button>
      <button type="button" onClick=${() => close(null)}>Cancel</button>
    </div>
  </form>`;
}

function NumberField({ label, value, least, most, required = true, onChange }) {
  const id = useId();
  return html`<p className="number-field">
    <label htmlFor=${id}>${label}</label>
    <input id=${id} type="number" min=${least} max=${most} step="1" required=${required} value=${value} onChange=${(event) => onChange(event.target.value)} />
  </p>`;
}
