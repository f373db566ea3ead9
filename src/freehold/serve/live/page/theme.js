// Light, dark, or what the system says.

import { byId } from "./dom.js";

const STORED = "freehold.theme";

/** Apply the kept choice, and wire the switch. */
export function startTheme() {
  const select = byId("theme");
  select.value = localStorage.getItem(STORED) ?? "auto";
  apply(select.value);
  select.addEventListener("change", () => {
    localStorage.setItem(STORED, select.value);
    apply(select.value);
  });
}

function apply(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
