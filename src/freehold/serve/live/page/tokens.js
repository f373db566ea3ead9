// The token view: a chip a token, and what is known of the chosen one. Arrow keys go from chip to chip.

import { element } from "./dom.js";
import { percent } from "./format.js";

const LEVELS = [0.9, 0.6, 0.3, 0.1]; // of probability; the scale has one more below the last

/** Chips of a prompt, the first `numCached` of them marked as reused. */
export function promptChips(answer, onChoose) {
  const list = chipList("Tokens of the prompt", onChoose);
  answer.promptIds.forEach((id, index) => {
    const isCached = index < answer.numCached;
    const text = answer.promptTexts[index] ?? `#${id}`;
    const label = `${spoken(text)}, id ${id}${isCached ? ", cached" : ""}`;
    list.append(chip({ id, text, index, isCached }, isCached ? "cached" : "computed", label));
  });
  return list;
}

/** Add chips for the answer's tokens that the list has none for yet. */
export function addAnswerChips(list, tokens) {
  for (let index = list.childElementCount; index < tokens.length; index += 1) {
    const token = tokens[index];
    const text = token.text ?? `#${token.id}`;
    const likely = token.logprob === null ? "" : `, probability ${percent(Math.exp(token.logprob))}`;
    list.append(chip({ ...token, text, index }, levelOf(token.logprob), `${spoken(text)}${likely}`));
  }
}

/** An empty list of chips; `onChoose` is told the token of the one that has the focus or was clicked. */
export function chipList(label, onChoose) {
  const list = element("div", { class: "chips", role: "listbox", "aria-label": label, "aria-orientation": "horizontal" });
  list.addEventListener("focusin", ({ target }) => target.token && choose(list, target, onChoose));
  list.addEventListener("click", ({ target }) => target.closest(".chip")?.focus());
  list.addEventListener("keydown", (event) => {
    const next = neighbour(list, event.target, event.key);
    if (next === undefined) return;
    event.preventDefault();
    next?.focus();
  });
  return list;
}

/** What is known of one token, as a list of terms. */
export function tokenDetails(token) {
  const rows = [
    ["Token", element("code", {}, token.text)],
    ["Id", token.id === null ? "not told" : String(token.id)],
  ];
  if (token.isCached !== undefined) rows.push(["Prefix cache", token.isCached ? "reused" : "computed"]);
  if (token.bytes) rows.push(["Bytes", token.bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ")]);
  if (token.logprob !== null && token.logprob !== undefined) {
    rows.push(["Log probability", `${token.logprob.toFixed(4)} (${percent(Math.exp(token.logprob))})`]);
  }
  if (token.sinceMs !== undefined) rows.push(["Came after", since(token)]);
  const parts = rows.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]);
  return element("div", {}, element("dl", { class: "facts" }, ...parts), alternatives(token));
}

function alternatives(token) {
  if (!token.top?.length) return null;
  const rows = token.top.map((other) => {
    const share = Math.exp(other.logprob);
    const bar = element("span", { class: "share-bar" });
    bar.style.setProperty("--share", share);
    const isChosen = other.token === token.text && other.logprob === token.logprob;
    return element(
      "tr",
      { class: isChosen ? "chosen" : null },
      element("th", { scope: "row" }, element("code", {}, visible(other.token)), isChosen ? " (chosen)" : ""),
      element("td", {}, other.logprob.toFixed(4)),
      element("td", {}, percent(share), bar),
    );
  });
  const head = ["Token", "Log probability", "Probability"].map((name) => element("th", { scope: "col" }, name));
  return element(
    "table",
    { class: "plain alternatives" },
    element("caption", {}, "Likeliest at this place"),
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows),
  );
}

function since(token) {
  if (token.sinceMs === null) return "not measured: the answer came whole";
  if (token.index === 0) return `${token.sinceMs.toFixed(1)} ms, counted from sending the request`;
  return token.sinceMs === 0 ? "0 ms, together with the token before" : `${token.sinceMs.toFixed(1)} ms, counted from the token before`;
}

function chip(token, level, label) {
  const node = element(
    "span",
    { class: `chip ${level}`, role: "option", tabindex: token.index === 0 ? 0 : -1, "aria-selected": "false", "aria-label": label },
    element("span", { class: "chip-text" }, visible(token.text)),
  );
  if (token.logprob !== null && token.logprob !== undefined) {
    node.append(element("span", { class: "chip-note" }, percent(Math.exp(token.logprob))));
  }
  node.token = token;
  return node;
}

function choose(list, node, onChoose) {
  for (const other of list.querySelectorAll("[aria-selected=true], [tabindex='0']")) {
    other.setAttribute("aria-selected", "false");
    other.setAttribute("tabindex", "-1");
  }
  node.setAttribute("aria-selected", "true");
  node.setAttribute("tabindex", "0");
  onChoose(node.token);
}

/** The chip that a key leads to; null: there is none further; undefined: the key leads nowhere. */
function neighbour(list, from, pressed) {
  switch (pressed) {
    case "ArrowRight":
    case "ArrowDown":
      return from.nextElementSibling;
    case "ArrowLeft":
    case "ArrowUp":
      return from.previousElementSibling;
    case "Home":
      return list.firstElementChild;
    case "End":
      return list.lastElementChild;
    default:
      return undefined;
  }
}

function levelOf(logprob) {
  if (logprob === null) return "unscored";
  const level = LEVELS.findIndex((least) => Math.exp(logprob) >= least);
  return `level-${level === -1 ? LEVELS.length : level}`;
}

/** With white space that can be seen. */
function visible(text) {
  return text.replaceAll("\n", "↵").replaceAll("\t", "→").replace(/^ | $/g, "·") || "∅";
}

/** For screen readers. */
function spoken(text) {
  return text === "\n" ? "line break" : text.trim() || "blank";
}
