// A request's stages: how long each took, as a bar and in words.

import { element } from "./dom.js";
import { duration } from "./format.js";

export const STAGES = ["tokenize", "queue", "prefill", "answer"];

/** What a request is doing, or how it ended. */
export function stateOf(request) {
  const doing = { arrived: "tokenizing", tokenized: "waiting", computing: "prefill", answering: "answering" };
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
  const borders = [0, request.tokenized_s, request.started_s, request.first_token_s, request.ended_s];
  const total = totalOf(request, nowS);
  const stages = [];
  for (let index = 0; index < STAGES.length; index += 1) {
    if (borders[index] === null) break;
    const end = borders[index + 1] ?? total;
    stages.push({ name: STAGES[index], seconds: Math.max(0, end - borders[index]), isGoingOn: borders[index + 1] === null && request.ended_s === null });
    if (borders[index + 1] === null) break;
  }
  return stages;
}

/** The stages in words: "queue 1.2 s, prefill 80 ms". */
export function stagesInWords(request, nowS) {
  return stagesOf(request, nowS)
    .map(({ name, seconds, isGoingOn }) => `${name} ${duration(seconds)}${isGoingOn ? " so far" : ""}`)
    .join(", ");
}

/** An empty bar for `showStages`. */
export function stageBar() {
  return element("div", { class: "stage-bar", role: "img" }, ...STAGES.map((name) => element("span", { class: `stage ${name}` })));
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
