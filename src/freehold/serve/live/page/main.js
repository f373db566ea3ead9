// The page: its views by the address's fragment, its theme, its key, its shortcuts.

import { byId, setText } from "./dom.js";
import { startKey } from "./key.js";
import { Live } from "./live.js";
import { startPlayground } from "./playground.js";
import { showRequest } from "./request.js";
import { startShortcuts } from "./shortcuts.js";
import { startTheme } from "./theme.js";

const VIEWS = { live: "Live", playground: "Playground", request: "Request" };

startTheme();
startKey();
startPlayground();
startShortcuts();
const live = new Live(() => place().view === "request" && showRequest(live.store, place().id));
window.addEventListener("hashchange", () => show(true));
byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address's fragment names the view
  byId(place().view).querySelector("h1").focus();
});
show(false);

/** Which view the address names, and which request. */
function place() {
  const [name, id = ""] = location.hash.slice(1).split("=");
  return Object.hasOwn(VIEWS, name) ? { view: name, id: decoded(id) } : { view: "live", id: "" };
}

function show(takesFocus) {
  const { view, id } = place();
  for (const name of Object.keys(VIEWS)) byId(name).hidden = name !== view;
  for (const link of document.querySelectorAll("#views a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[view]} · Freehold`;
  if (view === "request") showRequest(live.store, id);
  if (takesFocus) byId(view).querySelector("h1").focus();
  if (takesFocus) window.scrollTo(0, 0);
  setText(byId("request-id"), id);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
