// Single keys that lead somewhere. They do nothing while something is typed, and can be switched off.

import { byId } from "./dom.js";

const STORED = "freehold.shortcuts";

const SHORTCUTS = {
  l: () => (location.hash = "live"),
  p: () => (location.hash = "playground"),
  "/": () => goTo("live", "request-filter"),
  m: () => goTo("playground", "message"),
  h: () => byId("request-pause").click(),
  t: () => byId("theme").focus(),
  "?": () => byId("help-dialog").showModal(),
};

/** Wire the keys and the dialog that lists them. */
export function startShortcuts() {
  const isOn = byId("shortcuts-on");
  isOn.checked = localStorage.getItem(STORED) !== "off";
  isOn.addEventListener("change", () => localStorage.setItem(STORED, isOn.checked ? "on" : "off"));
  byId("help-open").addEventListener("click", () => byId("help-dialog").showModal());
  byId("help-close").addEventListener("click", () => byId("help-dialog").close());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("stop").disabled) byId("stop").click();
    const isTyping = event.target.matches("input, textarea, select");
    const isOurs = isOn.checked && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!isOurs || document.querySelector("dialog[open]") || !Object.hasOwn(SHORTCUTS, event.key)) return;
    event.preventDefault();
    SHORTCUTS[event.key]();
  });
}

/** Show a view, and put the focus where it is wanted. */
function goTo(view, id) {
  if (location.hash === `#${view}`) {
    byId(id).focus();
  } else {
    window.addEventListener("hashchange", () => byId(id).focus(), { once: true });
    location.hash = view;
  }
}
