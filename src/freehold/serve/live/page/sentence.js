// The sentence that names what limits the server. How bad it is shows in a word and a shape, not in colour alone.

import { byId, element, setText, shape } from "./dom.js";

const SEVERITIES = {
  ok: { word: "Fine", outline: "M12 2a10 10 0 1 0 0.01 0Z", mark: "M7 12.5l3.5 3.5L17 9" },
  notice: { word: "Note", outline: "M12 1L23 12L12 23L1 12Z", mark: "M12 7v0.2M12 11v6" },
  warning: { word: "Limited", outline: "M12 2L23 22H1Z", mark: "M12 9v6M12 18.4v0.2" },
  critical: { word: "In trouble", outline: "M8 1h8l7 7v8l-7 7H8l-7-7V8Z", mark: "M8 8l8 8M16 8l-8 8" },
};

/** Show what limits the server now. Screen readers hear of another cause, not of each number that changes. */
export function showSentence({ code, severity, sentence, settings }) {
  const banner = byId("banner");
  const { word, outline, mark } = SEVERITIES[severity];
  if (banner.dataset.severity !== severity) {
    banner.dataset.severity = severity;
    const icon = shape("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, shape("path", { class: "outline", d: outline }), shape("path", { class: "mark", d: mark }));
    byId("severity-icon").replaceChildren(icon);
  }
  if (banner.dataset.code !== code) {
    banner.dataset.code = code;
    setText(byId("announced"), `${word}: ${sentence}`);
  }
  setText(byId("severity"), word);
  setText(byId("sentence"), sentence);
  if (byId("settings").textContent !== settings.join("")) {
    byId("settings").replaceChildren(...settings.map((flag) => element("li", {}, element("code", {}, flag))));
  }
  byId("settings-line").hidden = settings.length === 0;
}
