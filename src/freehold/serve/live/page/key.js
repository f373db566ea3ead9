// The visitor's key: asked for once, kept in this tab's sessionStorage and nowhere else.

import { byId, setText } from "./dom.js";

const STORED = "freehold.key";

const changed = new Set();

/** The key, or null. */
export function key() {
  return sessionStorage.getItem(STORED);
}

/** Call back when the visitor gives another key, or takes it away. */
export function onKeyChange(callback) {
  changed.add(callback);
}

/** Ask for a key, and say why. */
export function askForKey(reason) {
  setText(byId("key-reason"), reason);
  setText(byId("key-state"), key() === null ? "No key is kept." : "A key is kept in this tab.");
  byId("key-forget").hidden = key() === null;
  byId("key-input").value = "";
  if (!byId("key-dialog").open) byId("key-dialog").showModal();
}

/** Wire the dialog and the button that opens it. */
export function startKey() {
  byId("key-open").addEventListener("click", () => askForKey("The page sends it with each request for data."));
  byId("key-cancel").addEventListener("click", () => byId("key-dialog").close());
  byId("key-forget").addEventListener("click", () => set(null));
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = byId("key-input").value.trim();
    if (given !== "") set(given);
  });
}

function set(given) {
  if (given === null) sessionStorage.removeItem(STORED);
  else sessionStorage.setItem(STORED, given);
  byId("key-input").value = "";
  byId("key-dialog").close();
  for (const callback of changed) callback();
}
