// The list of requests: newest first, filtered, and held still on demand.

import { byId, element, keep, setText } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { hasFailed, showStages, stageBar, stateOf, totalOf } from "./stages.js";

const PAGE = 40; // requests shown, and added when more are asked for
const COLUMNS = ["Request", "Key", "State", "Stages", "In all", "Prompt", "Cached", "Output"];

const OF_STATE = {
  all: () => true,
  live: (request) => request.stage !== "ended",
  ended: (request) => request.stage === "ended",
  failed: hasFailed,
};

/** The list; `update` shows what the store holds. */
export class RequestList {
  constructor(store) {
    this.store = store;
    this.held = null; // requests as they were when the list was paused
    this.maxShown = PAGE;
    this.body = element("tbody");
    const head = COLUMNS.map((name) => element("th", { scope: "col" }, name));
    byId("request-table").append(element("thead", {}, element("tr", {}, ...head)), this.body);
    byId("request-filter").addEventListener("input", () => this.update());
    byId("request-state").addEventListener("change", () => this.update());
    byId("request-pause").addEventListener("click", () => this.pause());
    byId("request-more").addEventListener("click", () => {
      this.maxShown += PAGE;
      this.update();
    });
  }

  /** Hold the list still, or let it go on. */
  pause() {
    this.held = this.held === null ? this.store.requests : null;
    byId("request-pause").setAttribute("aria-pressed", String(this.held !== null));
    this.update();
  }

  update() {
    const all = this.held ?? this.store.requests;
    const words = byId("request-filter").value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const isOfState = OF_STATE[byId("request-state").value];
    const found = all.filter((request) => isOfState(request) && words.every((word) => searchable(request).includes(word)));
    const shown = found.slice(0, this.maxShown);
    const { nowS } = this.store;
    const fullS = Math.max(0.001, ...shown.map((request) => totalOf(request, nowS)));
    keep(this.body, shown, ({ id, at }) => `${id} ${at}`, row, (node, request) => fill(node, request, nowS, fullS));
    byId("request-table").hidden = shown.length === 0;
    byId("request-more").hidden = shown.length === found.length;
    byId("no-requests").hidden = all.length > 0;
    setText(byId("request-summary"), this.summary(all.length, found.length, shown.length));
  }

  summary(numAll, numFound, numShown) {
    const left = numShown < numFound ? `, the newest ${count(numShown)} shown` : "";
    return `${count(numFound)} of ${count(numAll)} requests${left}${this.held === null ? "" : "; held"}`;
  }
}

function searchable({ id, key, surface, service, outcome, stage }) {
  return [id, key, surface, service, outcome, stage].join(" ").toLowerCase();
}

function row(request) {
  const link = element("a", { href: `#request=${encodeURIComponent(request.id)}` }, element("code", {}, shortened(request.id)));
  link.title = request.id;
  const first = element("th", { scope: "row" }, link, element("span", { class: "quiet arrived" }, clock(request.at)));
  const cells = COLUMNS.slice(1).map((name) => element("td", { "data-name": name }));
  cells[2].append(stageBar());
  return element("tr", {}, first, ...cells);
}

function fill(node, request, nowS, fullS) {
  const [, key, state, stages, total, prompt, cached, output] = node.children;
  setText(key, request.key || "no key");
  setText(state, stateOf(request));
  node.classList.toggle("failed", hasFailed(request));
  node.classList.toggle("live", request.stage !== "ended");
  showStages(stages.firstChild, request, nowS, fullS);
  setText(total, duration(totalOf(request, nowS)));
  setText(prompt, count(request.num_prompt_tokens));
  setText(cached, count(cachedOf(request)));
  setText(output, count(request.num_output_tokens));
}

/** Prompt tokens that were reused; null as long as the engine hasn't told. */
function cachedOf({ stage, num_cached_tokens }) {
  return stage === "ended" ? num_cached_tokens : null;
}

function shortened(id) {
  return id.length <= 14 ? id : `${id.slice(0, 12)}…`;
}
