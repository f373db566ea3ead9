// A request's stages: how long each took, as a bar and in words.

import { element } from "./dom.js";
import { duration } from "./format.js";

const UNTOLD = "queue or prefill";
const STAGES = ["tokenize", "queue", UNTOLD, "prefill", "answer"];

/** What a request is doing, or how it ended. */
export function stateOf(request) {
  const doing = { arrived: "tokenizing", tokenized: "on its way", queued: UNTOLD, answering: "answering" };
  return doing[request.stage] ?? (request.outcome || "ended");
}

/** Whether something went wrong, or somebody broke it off. */
export function hasFailed(request) {
  return request.stage === "ended" && (request.status === 0 || request.status >= 400 || /^(failed|cancelled)/.test(request.outcome));
}

/** Seconds from its arrival to its end, or to `nowS` (Unix seconds). */
export function totalOf(request, nowS) {
  return request.ended_s ?? Math.max(0, nowS - request.at);
}

/** The stages that it has reached: [{name, seconds, isGoingOn}]. */
export function stagesOf(request, nowS) {
  const borders = bordersOf(request, totalOf(request, nowS));
  return borders.map(([name, end], index) => ({
    name,
    seconds: Math.max(0, end - (index === 0 ? 0 : borders[index - 1][1])),
    isGoingOn: index === borders.length - 1 && request.stage !== "ended",
  }));
}

/** Each stage with the second at which it ended. When the engine began with a request is known with its first token. */
function bordersOf({ stage, tokenized_s, started_s, first_token_s }, total) {
  if (tokenized_s === null) return [["tokenize", total]];
  const before = [["tokenize", tokenized_s]];
  if (started_s !== null) before.push(["queue", started_s]);
  const wait = started_s !== null ? "prefill" : stage === "ended" && first_token_s === null ? "queue" : UNTOLD;
  if (first_token_s === null) return [...before, [wait, total]];
  return [...before, [wait, first_token_s], ["answer", total]];
}

/** The stages in words: "queue 1.2 s, prefill 80 ms". */
function stagesInWords(request, nowS) {
  return stagesOf(request, nowS)
    .map(({ name, seconds, isGoingOn }) => `${name} ${duration(seconds)}${isGoingOn ? " so far" : ""}`)
    .join(", ");
}

/** An empty bar for `showStages`. */
export function stageBar() {
  return element("div", { class: "stage-bar", role: "img" }, ...STAGES.map((name) => element("span", { class: `stage ${classOf(name)}` })));
}

/** The class that gives a stage its colour. */
export function classOf(name) {
  return name.replaceAll(" ", "-");
}

/** Show a request's stages; a bar of full length takes `fullS` seconds. */
export function showStages(bar, request, nowS, fullS) {
  const stages = new Map(stagesOf(request, nowS).map((stage) => [stage.name, stage]));
  STAGES.forEach((name, index) => {
    const part = bar.children[index];
    const stage = stages.get(name);
    part.style.setProperty("--share", (stage?.seconds ?? 0) / fullS);
    part.classList.toggle("going-on", stage?.isGoingOn ?? false);
  });
  const words = stagesInWords(request, nowS);
  bar.setAttribute("aria-label", words);
  bar.title = words;
}
