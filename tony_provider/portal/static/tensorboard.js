// Commands that show the event files of jobs with TensorBoard on the user's machine.
import { Command } from "./command.js";
import { html } from "./html.js";
import { Section } from "./parts.js";

export const TensorBoard = ({ commands }) => html`<${Section} title="TensorBoard">
  <p className="soft">The command starts TensorBoard for the event files of the program. Run the command on a machine with Airflow, the connection, and the package tensorboard.
    ${commands.length > 1 && "Each connection and user needs its own command."}</p>
  ${commands.map((each) => html`<${Command} key=${each} text=${each} label="Command that starts TensorBoard" />`)}
<//>`;
