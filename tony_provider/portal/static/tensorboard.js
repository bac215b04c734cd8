// Commands that show the event files of jobs with TensorBoard on the user's machine.
import { html, useState } from "./html.js";
import { Announcement, Section } from "./parts.js";

export const TensorBoard = ({ commands }) => html`<${Section} title="TensorBoard">
  <p className="soft">Shows the event files of the program. Run the command on a machine with Airflow, the connection, and the package tensorboard.
    ${commands.length > 1 && "There is one command for the jobs of each connection and user."}</p>
  ${commands.map((each) => html`<${Command} key=${each} text=${each} />`)}
<//>`;

// Browsers allow copying only for pages from HTTPS or from this machine.
function Command({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return html`<div className="command">
    <pre tabIndex=${0} role="region" aria-label="Command that starts TensorBoard">${text}</pre>
    ${navigator.clipboard && html`<button type="button" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>`}
    ${copied && html`<${Announcement} text="Command copied" />`}
  </div>`;
}
