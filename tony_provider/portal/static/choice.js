// Choosing some of many names, of which there may be 10,000: a searchable list of bounded length.
import { html, useId, useMemo, useState } from "./html.js";
import { count } from "./format.js";

const SHOWN = 30; // names at a time
const SEARCHED = 12; // more names than that have a field to search them

export function Choice({ title, word, names, chosen, most, single = false, onChange }) {
  const [text, setText] = useState("");
  const field = useId();
  const shown = useMemo(() => found(names, chosen, text), [names, chosen, text]);
  const toggle = (name) => onChange(single ? [name] : chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
  const full = !single && chosen.length >= most;
  const bound = full && names.length > most ? `, at most ${most}` : "";
  return html`<fieldset className="choice">
    <legend>${title} <small>${chosen.length} of ${names.length.toLocaleString("en")} shown${bound}</small></legend>
    ${names.length > SEARCHED &&
    html`<div className="search"><label htmlFor=${field} className="unseen">Find a ${word}</label>
      <input id=${field} type="search" value=${text} placeholder=${`Find a ${word} …`} onChange=${(event) => setText(event.target.value)} /></div>`}
    <div className="names">
      ${shown.map(
        (name) => html`<label key=${name} title=${name}>
          <input type=${single ? "radio" : "checkbox"} name=${field} checked=${chosen.includes(name)} disabled=${full && !chosen.includes(name)} onChange=${() => toggle(name)} />
          <span>${name}</span>
        </label>`,
      )}
    </div>
    ${shown.length < names.length &&
    html`<p className="soft" role="status">${shown.length === 0 ? `No ${word} has “${text}” in its name.` : `The list has ${shown.length} of ${count(names.length, word)}. Search for others.`}</p>`}
  </fieldset>`;
}

// Those that are chosen come first, so that they can be taken away again.
function found(names, chosen, text) {
  const wanted = text.toLowerCase();
  const matching = [];
  for (const name of names) {
    if (matching.length >= SHOWN) break;
    if (!chosen.includes(name) && name.toLowerCase().includes(wanted)) matching.push(name);
  }
  const first = wanted ? chosen.filter((name) => name.toLowerCase().includes(wanted)) : chosen;
  return [...first, ...matching];
}
