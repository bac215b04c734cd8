// A selection from up to 10,000 names: a searchable list of limited length.
import { html, useId, useMemo, useState } from "./html.js";
import { count } from "./format.js";

const SHOWN = 30; // limit of listed names
const SEARCHED = 12; // a search field is shown for more names

export function Choice({ title, word, names, chosen, most, single = false, onChange }) {
  const [text, setText] = useState("");
  const field = useId();
  const shown = useMemo(() => found(names, chosen, text), [names, chosen, text]);
  const toggle = (name) => onChange(single ? [name] : chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name]);
  const full = !single && chosen.length >= most;
  const bound = full && names.length > most ? `, at most ${most}` : "";
  return html`<fieldset className="choice">
    <legend>${title} <small>${!single && `${chosen.length} of ${names.length.toLocaleString("en")} shown${bound}`}</small></legend>
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
    html`<p className="soft" role="status">${shown.length === 0 ? `No ${word} name contains “${text}”.` : `The list has ${shown.length} of ${count(names.length, word)}. Search for others.`}</p>`}
  </fieldset>`;
}

// Chosen names come first, so that the user can deselect them.
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
