// Commands that show the event files of jobs with TensorBoard on the user's machine.
import { Command } from "./command.js";
import { html } from "./html.js";
import { Section } from "./parts.js";

export const TensorBoard = ({ commands }) => html`<${Section} title="TensorBoard">
  <p className="soft">Shows the event files of the program. Run the command on a machine with Airflow, the connection, and the package tensorboard.
    ${commands.length > 1 && "There is one command for the jobs of each connection and user."}</p>
  ${commands.map((each) => html`<${Command} key=${each} text=${each} label="Command that starts TensorBoard" />`)}
<//>`;
