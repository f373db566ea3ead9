// One request in detail.

import { byId, element, setText } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { hasFailed, stageBar, showStages, stagesOf, stateOf, totalOf } from "./stages.js";

/** Show the request with this id, as far as the store knows it. */
export function showRequest(store, id) {
  setText(byId("request-id"), id);
  const request = store.request(id);
  byId("request-unknown").hidden = request !== undefined || store.answer === null;
  byId("request-details").hidden = request === undefined;
  if (request === undefined) return;
  const { nowS } = store;
  const bar = stageBar();
  showStages(bar, request, nowS, Math.max(0.001, totalOf(request, nowS)));
  byId("request-bar").replaceChildren(bar);
  let begin = 0;
  const rows = stagesOf(request, nowS).map(({ name, seconds, isGoingOn }) => {
    const cells = [duration(begin), `${duration(seconds)}${isGoingOn ? " so far" : ""}`];
    begin += seconds;
    const mark = element("span", { class: `stage-sample ${name}`, "aria-hidden": "true" });
    return element("tr", {}, element("th", { scope: "row" }, mark, name), ...cells.map((text) => element("td", {}, text)));
  });
  byId("request-stages").replaceChildren(...rows);
  const facts = factsOf(request, nowS).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  byId("request-facts").replaceChildren(...facts);
}

function factsOf(request, nowS) {
  const facts = [
    ["State", `${stateOf(request)}${hasFailed(request) ? " (not completed)" : ""}`],
    ["Arrived", `${clock(request.at)}, ${duration(Math.max(0, nowS - request.at))} ago`],
    ["In all", duration(totalOf(request, nowS))],
    ["Key", request.key || "no key"],
    ["Path", `${request.surface}${request.is_stream ? ", streamed" : ""}`],
    ["Class", request.service],
    ["Answers", count(request.num_answers)],
    ["Prompt tokens", count(request.num_prompt_tokens)],
    ["Computed or reused of these", count(request.num_computed_tokens)],
    ["Cached of these", request.stage === "ended" ? count(request.num_cached_tokens) : "told at its end"],
    ["Output tokens", count(request.num_output_tokens)],
    ["Preemptions", count(request.num_preemptions)],
    ["HTTP status", request.status === 0 ? "none yet" : String(request.status)],
  ];
  if (request.first_token_s !== null && request.num_output_tokens > 1) {
    const perToken = ((request.ended_s ?? nowS - request.at) - request.first_token_s) / (request.num_output_tokens - 1);
    facts.push(["Time per output token", duration(perToken)]);
  }
  if (request.unread_s > 0) facts.push(["Client had no room for", duration(request.unread_s)]);
  if (request.num_unread_bytes > 0) facts.push(["Bytes the client leaves unread", count(request.num_unread_bytes)]);
  return facts;
}
