// The live view: asks the server each second, shows what it told, and says so when it tells nothing.

import { get } from "./api.js";
import { Charts } from "./charts.js";
import { byId, element, setText } from "./dom.js";
import { clock, duration } from "./format.js";
import { askForKey, onKeyChange } from "./key.js";
import { showCache, showFigures, showKeys, showLatencies } from "./panels.js";
import { Poll } from "./poll.js";
import { RequestList } from "./requests.js";
import { showSentence } from "./sentence.js";
import { Store } from "./store.js";

const TIMEOUT_MS = 10000;
const YOUNG_S = 600; // of a server whose hour would be an almost empty chart

/** Keeps asking. `onChange` is called when there is something new. */
export class Live {
  constructor(onChange) {
    this.store = new Store();
    this.onChange = onChange;
    this.charts = new Charts(byId("charts"));
    this.requests = new RequestList(this.store);
    this.poll = new Poll(() => this.ask(), (error, waitMs) => this.showProblem(error, waitMs));
    this.hasAskedForKey = false;
    byId("try-now").addEventListener("click", () => this.poll.now());
    byId("latency-window").addEventListener("change", () => this.store.answer && showLatencies(this.store.answer));
    byId("span").addEventListener("change", () => this.showCharts());
    onKeyChange(() => {
      this.store.forget();
      this.poll.now();
    });
    this.poll.now();
  }

  async ask() {
    const answer = await get(this.store.path, AbortSignal.timeout(TIMEOUT_MS));
    this.store.take(answer);
    byId("problem").hidden = true;
    document.body.classList.remove("stale");
    this.show(answer);
    this.onChange();
  }

  show(answer) {
    if (byId("data").hidden) byId("span").value = answer.server.uptime_s < YOUNG_S ? "300" : "3600";
    byId("no-data").hidden = true;
    byId("data").hidden = false;
    showSentence(answer.binding);
    showFigures(answer);
    showLatencies(answer);
    showCache(answer);
    showKeys(answer);
    this.showCharts();
    this.requests.update();
    const { server, now } = answer;
    setText(byId("model-name"), server.model);
    setText(byId("updated"), `Updated ${clock(now.at)}`);
    showAbout(server);
    byId("engine-problem").hidden = server.ready;
    setText(byId("engine-problem"), server.ready ? "" : `Nothing can be generated now: ${server.why_not_ready}`);
  }

  showCharts() {
    const spanS = Number(byId("span").value);
    this.charts.update(this.store.points(spanS), spanS);
  }

  /** What is wrong, what is still shown, and when the page tries again. */
  showProblem(error, waitMs) {
    const { answer } = this.store;
    document.body.classList.add("stale");
    byId("problem").hidden = false;
    byId("no-data").hidden = true;
    const kept = answer === null ? "" : ` The numbers are those of ${clock(answer.now.at)}.`;
    setText(byId("problem-text"), `${sentenceOf(error)}${kept}`);
    setText(byId("problem-retry"), waitMs === null ? "" : `Next try in ${waitMs / 1000} s.`);
    setText(byId("updated"), answer === null ? "No numbers yet" : `Not updated since ${clock(answer.now.at)}`);
    if (error.status === 401 && !this.hasAskedForKey) {
      this.hasAskedForKey = true;
      askForKey(error.message);
    }
  }
}

function sentenceOf(error) {
  if (error.status === 401) return `This server wants a key: ${error.message}.`;
  if (error.status === 403) return `This key may not see what others do: ${error.message}. The playground may still work.`;
  if (error.status === 404) return "This server tells nothing of itself. The playground may still work.";
  if (error.status !== undefined) return `The server answered with an error: ${error.message}.`;
  return "The server can't be reached.";
}

function showAbout(server) {
  const { limits } = server;
  const facts = [
    ["Model", `${server.model} (${server.model_family})`],
    ["Version", server.version],
    ["Backend", server.backend],
    ["Up for", duration(server.uptime_s)],
    ["Engine starts", String(server.num_engine_starts)],
    ["Context", `${limits.max_model_len} tokens`],
    ["Requests at once", String(limits.max_num_seqs)],
    ["Tokens a step", String(limits.max_num_batched_tokens)],
    ["Queue", limits.max_num_queued_reqs === null ? "unbounded" : String(limits.max_num_queued_reqs)],
    ["KV cache", `${limits.kv_tokens} tokens in blocks of ${limits.block_size}`],
    ["Fingerprint", server.fingerprint],
  ];
  const text = JSON.stringify(facts);
  if (byId("about").dataset.shown === text) return;
  byId("about").dataset.shown = text;
  byId("about").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}
