// A request's stages: how long each took, as a bar and in words.

import { element } from "./dom.js";
import { duration, percent } from "./format.js";

const STAGES = ["tokenize", "compile", "queue", "prefill", "answer"];

/** What a request is doing, or how it ended. */
export function stateOf(request) {
  if (request.stage === "ended") return request.outcome || "ended";
  return request.stage === "prefilling" ? `prefill, ${percent(prefilledOf(request))}` : request.stage;
}

/** The share of its prompt that is computed or was reused. */
function prefilledOf({ num_computed_tokens, num_prompt_tokens }) {
  return num_computed_tokens / Math.max(1, num_prompt_tokens);
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

/** Each stage with the second at which it ended. Grammars are compiled once the prompt is known. */
function bordersOf({ stage, tokenized_s, compile_s, started_s, first_token_s }, total) {
  const borders = [];
  const reach = (name, end) => borders.push([name, end ?? total]);
  reach("tokenize", tokenized_s);
  if (tokenized_s === null) return borders;
  if (compile_s !== null) reach("compile", stage === "compiling" ? total : tokenized_s + compile_s);
  if (stage === "compiling") return borders;
  reach("queue", started_s);
  if (started_s === null) return borders;
  reach("prefill", first_token_s);
  if (first_token_s !== null) reach("answer", total);
  return borders;
}

/** The stages in words: "queue 1.2 s, prefill 80 ms". */
function stagesInWords(request, nowS) {
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
