// The chat playground: a conversation over the same API that every client uses.

import { Answer, fetchAnswer, fetchPromptTexts } from "./answer.js";
import { AnswerView } from "./answer_view.js";
import { get } from "./api.js";
import { curlCommand } from "./curl.js";
import { byId, element, setText } from "./dom.js";
import { askForKey, onKeyChange } from "./key.js";
import { chosenParameters, startParameters } from "./parameters.js";

const turns = []; // {role, content} of what was said
let running = null; // the AbortController of the answer that is on its way
let model = null;

/** Wire the playground's form. */
export function startPlayground() {
  startParameters();
  byId("playground-form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("message").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("playground-form").requestSubmit();
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("start-over").addEventListener("click", startOver);
  byId("copy-curl").addEventListener("click", copyCurl);
  byId("view-tokens").addEventListener("change", showView);
  byId("view-text").addEventListener("change", showView);
  byId("curl-close").addEventListener("click", () => byId("curl-dialog").close());
  onKeyChange(() => (model = null));
}

async function send() {
  const content = byId("message").value;
  if (running !== null || (content.trim() === "" && turns.at(-1)?.role !== "user")) return;
  running = new AbortController();
  const { signal } = running;
  showRunning(true);
  if (content.trim() !== "") addTurn(content);
  byId("message").value = "";
  const answer = new Answer({ messages: messages(), ...chosenParameters() });
  const view = new AnswerView(answer);
  byId("turns").append(view.node);
  showView();
  try {
    answer.body.model = await modelName();
    await fetchAnswer(answer, signal, () => view.update());
  } catch (error) {
    answer.state = "failed";
    answer.error = error;
    view.update();
  }
  running = null;
  showRunning(false);
  finish(answer, view);
}

/** Keep what was said, and look up the prompt's tokens. */
async function finish(answer, view) {
  if (answer.error?.status === 401) askForKey(answer.error.message);
  if (!view.node.isConnected) return; // the conversation has started over meanwhile
  if (answer.text !== "") turns.push({ role: "assistant", content: answer.text });
  setText(byId("playground-status"), view.summary);
  if (document.activeElement === document.body || document.activeElement.disabled) byId("message").focus();
  if (answer.error === null) {
    await fetchPromptTexts(answer).catch(() => null); // the ids alone are shown then
    view.update();
  }
}

function addTurn(content) {
  turns.push({ role: "user", content });
  byId("turns").append(
    element("article", { class: "turn user" }, element("h2", {}, "You"), element("p", { class: "said" }, content)),
  );
}

function messages() {
  const system = byId("system").value;
  const said = turns.map(({ role, content }) => ({ role, content }));
  return system.trim() === "" ? said : [{ role: "system", content: system }, ...said];
}

async function modelName() {
  model ??= (await get("v1/models")).data[0].id;
  return model;
}

function startOver() {
  running?.abort();
  turns.length = 0;
  byId("turns").replaceChildren();
  setText(byId("playground-status"), "");
  byId("message").focus();
}

function showRunning(isRunning) {
  byId("send").disabled = isRunning;
  byId("stop").disabled = !isRunning;
  if (isRunning) setText(byId("playground-status"), "The answer is on its way.");
}

function showView() {
  byId("turns").classList.toggle("as-tokens", byId("view-tokens").checked);
}

/** Of the message that is written, or else of the last request. */
async function copyCurl() {
  const content = byId("message").value;
  const said = messages();
  if (content.trim() !== "") said.push({ role: "user", content });
  else if (said.at(-1)?.role === "assistant") said.pop();
  const name = await modelName().catch(() => "MODEL");
  const command = curlCommand({ model: name, messages: said, ...chosenParameters() });
  try {
    await navigator.clipboard.writeText(command);
    setText(byId("playground-status"), "The command is on the clipboard.");
  } catch {
    byId("curl-text").value = command; // browsers give pages of other machines no clipboard without TLS
    byId("curl-dialog").showModal();
    byId("curl-text").select();
  }
}
