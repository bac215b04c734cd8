// A command line that users copy.
import { html, useState } from "./html.js";
import { Announcement } from "./parts.js";

// Browsers allow copying only for pages from HTTPS or from this machine.
export function Command({ text, label }) {
  const [copied, setCopied] = useState(null);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(text));
  return html`<div className="command">
    <pre tabIndex=${0} role="region" aria-label=${label}>${text}</pre>
    ${navigator.clipboard && html`<button type="button" onClick=${copy}>${copied === text ? "Copied" : "Copy"}</button>`}
    ${copied === text && html`<${Announcement} text="Copied" />`}
  </div>`;
}
