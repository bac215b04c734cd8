// Actions on a running job: a button and the command of each action, and a confirmation before it is sent.
import { address, jobPath, postJson, useJson } from "./api.js";
import { Command } from "./command.js";
import { figure, known } from "./format.js";
import { html, useEffect, useId, useRef, useState } from "./html.js";
import { Problem, Section } from "./parts.js";

const REFRESH_SECONDS = 3600; // the token of the answer is valid for longer

// `state`: the state of the job in its newest status, null without a status. `counts`: its number of tasks by type.
// `step`: the step of its newest checkpoint, if it is known.
export function Actions({ applicationId, state, counts, step }) {
  const { data, error } = useJson(address(jobPath(applicationId, "actions")), REFRESH_SECONDS);
  const [open, setOpen] = useState(null);
  const [result, setResult] = useState(null);
  if (error) return html`<${Section} title="Actions"><${Problem} title="The actions cannot be loaded:" text=${error} /><//>`;
  if (!data) return null;
  if (data.reason) return html`<${Section} title="Actions"><p className="soft">${data.reason}</p><//>`;
  const resizable = Object.entries(data.resizable);
  const useful = (action) => (state === null ? action.name === "stop" : action.states.includes(state));
  const actions = data.actions.filter((each) => useful(each) && (each.name !== "resize" || resizable.length));
  if (!actions.length && !result) return null;
  const close = (lines) => {
    setOpen(null);
    setResult(lines);
  };
  return html`<${Section} title="Actions">
    ${data.missing.map((each) => html`<p key=${each} className="soft">Resize is not offered, because the job's specification cannot be read: ${each}</p>`)}
    <ul className="actions">${actions.map(
      (action) => html`<li key=${action.name}>
        <button type="button" aria-expanded=${open === action.name} onClick=${() => { setResult(null); setOpen(open === action.name ? null : action.name); }}>${action.title} …</button>
        <${Command} text=${action.name === "resize" ? `${action.command} ${words(starting(resizable, counts))}` : action.command} label=${`Command: ${action.title}`} />
        ${open === action.name && html`<${Confirmation} key=${action.name} ...${{ applicationId, action, token: data.token, addition: additions(data, step)[action.name], counts: starting(resizable, counts), limits: data.resizable, close }} />`}
      </li>`,
    )}</ul>
    <div role="status">${result?.map((each) => html`<p key=${each} className="good">${each}</p>`)}</div>
  <//>`;
}

const additions = ({ retries }, step) => ({ stop: retries, resume: known(step) ? `The newest checkpoint is from step ${figure(step)}.` : "" });

const starting = (resizable, counts) => Object.fromEntries(resizable.map(([type, [least]]) => [type, counts[type] ?? least]));

const words = (counts) => Object.entries(counts).map(([type, number]) => `${type}=${number}`).join(" ");

function Confirmation({ applicationId, action, token, addition, counts, limits, close }) {
  const [grace, setGrace] = useState("");
  const [numbers, setNumbers] = useState(counts);
  const [problem, setProblem] = useState(null);
  const [sending, setSending] = useState(false);
  const first = useRef(null);
  const about = useId();
  useEffect(() => first.current?.focus(), []);
  const stops = action.name === "stop";
  const resizes = action.name === "resize";
  const options = stops && grace !== "" ? ` --grace ${grace}s` : resizes ? ` ${words(numbers)}` : "";
  const send = async (event) => {
    event.preventDefault();
    setSending(true);
    setProblem(null);
    try {
      const body = { token, ...(stops && grace !== "" ? { grace: Number(grace) } : {}), ...(resizes ? { tasks: numbers } : {}) };
      close((await postJson(address(jobPath(applicationId, "actions", action.name)), body)).lines);
    } catch (error) {
      setProblem(error.message);
      setSending(false);
    }
  };
  return html`<form className="confirmation" role="group" aria-labelledby=${about} onSubmit=${send} onKeyDown=${(event) => event.key === "Escape" && close(null)}>
    <p id=${about}>${action.effect}${addition && ` ${addition}`}</p>
    ${stops && html`<${NumberField} label="Grace period in seconds (default: the job's setting)" value=${grace} least=${0} most=${86400} required=${false} onChange=${setGrace} />`}
    ${resizes && Object.entries(limits).map(([type, [least, most]]) => html`<${NumberField} key=${type} label=${`Tasks of type ${type} (${least} to ${most})`} value=${numbers[type]} least=${least} most=${most} onChange=${(text) => setNumbers({ ...numbers, [type]: Number(text) })} />`)}
    ${options && html`<${Command} text=${action.command + options} label="Command with these values" />`}
    ${problem && html`<${Problem} title="The action is not confirmed:" text=${problem} />`}
    <div className="buttons">
      <button ref=${first} type="submit" className=${stops ? "danger" : "main"} disabled=${sending}>${sending ? "Sending …" : action.title}</button>
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
