// The numbers of now: figures, latencies by stage, the KV cache, and what each key uses.

import { byId, element, keep, setText } from "./dom.js";
import { count, duration, number, percent } from "./format.js";

const WAITING_FOR = {
  rows: "for a row (--max-num-seqs)",
  tokens: "for room in a step (--max-num-batched-tokens)",
  blocks: "for KV blocks",
  leader: "for a prompt like theirs",
  grammar: "for their grammar",
  order: "for their turn",
};
const DURATIONS = [
  ["ttft", "Time to first token", 0],
  ["tokenize", "tokenize", 1],
  ["compile", "compile a grammar", 1],
  ["queue", "queue", 1],
  ["prefill", "prefill", 1],
  ["decode", "Decode", 0],
  ["itl", "Inter-token latency", 0],
  ["e2e", "Whole request", 0],
];

/** Show figures of now: a name, a value, and what it is made of. */
export function showFigures({ now, latencies, server }) {
  const minute = latencies[0];
  const { waiting, tokens_per_s: rates, step_shares: shares } = now;
  const reasons = Object.entries(WAITING_FOR).filter(([name]) => waiting[name] > 0);
  const figures = [
    ["Running", count(now.running), `of ${count(server.limits.max_num_seqs)}, ${count(now.prefilling)} in prefill`],
    ["Waiting", count(waiting.total), reasons.map(([name, text]) => `${count(waiting[name])} ${text}`).join(", ") || "nobody"],
    ["Time to first token", duration(minute.ttft.p50_s), `p99 ${duration(minute.ttft.p99_s)}, last minute`],
    ["Inter-token latency", duration(minute.itl.p50_s), `p99 ${duration(minute.itl.p99_s)}, last minute`],
    ["Output tokens/s", number(rates.output), `${number(rates.computed)} computed, ${number(rates.cached)} cached`],
    ["KV cache", percent(now.kv.used), `held of ${count(server.limits.kv_tokens)} tokens`],
    ["Prefix hits", percent(now.hit_rate), "of prompt tokens looked up"],
    ["Preemptions/s", number(now.preemptions_per_s), `${number(rates.recomputed)} tokens/s computed again`],
    ["Engine busy", percent(shares.plan + shares.run + shares.apply), `${number(now.steps_per_s)} steps/s`],
    ["Server", percent(now.server_cpu), `of a core; loop ${duration(now.loop_lag_s)} late`],
    ["Refused/s", number(now.rejected_per_s), `${count(now.num_slow_clients)} slow clients`],
  ];
  if (now.speculation !== null) {
    figures.push(["Guesses right", percent(now.speculation.accepted), `${number(now.speculation.per_step)} tokens a step`]);
  }
  keep(
    byId("figures"),
    figures,
    ([name]) => name,
    ([name]) => element("div", {}, element("dt", {}, name), element("dd", { class: "value" }), element("dd", { class: "quiet" })),
    (node, [, value, note]) => {
      setText(node.children[1], value);
      setText(node.children[2], note);
    },
  );
}

/** Show percentiles by stage over the window that is chosen. */
export function showLatencies({ latencies }) {
  const window = latencies[Number(byId("latency-window").value)];
  keep(
    byId("latencies"),
    DURATIONS,
    ([field]) => field,
    ([, name, depth]) => element("tr", { class: depth ? "part" : null }, element("th", { scope: "row" }, name), ...Array.from({ length: 5 }, () => element("td"))),
    (node, [field]) => {
      const { count: measured, mean_s, p50_s, p90_s, p99_s } = window[field];
      [p50_s, p90_s, p99_s, mean_s].forEach((value, index) => setText(node.children[index + 1], duration(value)));
      setText(node.children[5], count(measured));
    },
  );
  const parts = ["tokenize", "compile", "queue", "prefill"].map((name) => [name, window[name].count * (window[name].mean_s ?? 0)]);
  const whole = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
  showShares(byId("ttft-split"), whole > 0 ? parts.map(([name, seconds]) => [name, seconds / whole]) : [], "Time to first tokens by stage");
}

/** Show where the KV cache's blocks are. */
export function showCache({ now }) {
  keep(
    byId("tiers"),
    now.kv.tiers,
    ({ name }) => name,
    ({ name }) => element("div", { class: "tier" }, element("h3", {}, name === "ram" ? "RAM" : "Disk"), element("div"), element("p", { class: "quiet" })),
    (node, tier) => {
      const parts = [["held", tier.held], ["cached", tier.cached], ["free", tier.free]];
      showShares(node.children[1], parts.map(([name, blocks]) => [name, blocks / tier.num_blocks, `${count(blocks)} blocks`]), `${count(tier.num_blocks)} blocks`);
      setText(node.children[2], tier.pinned > 0 ? `${count(tier.pinned)} blocks are pinned: they go last.` : "");
    },
  );
  const most = Math.max(1, ...now.kv.by_namespace.map(({ num_blocks }) => num_blocks));
  byId("no-namespaces").hidden = now.kv.by_namespace.length > 0;
  keep(
    byId("namespaces"),
    now.kv.by_namespace,
    ({ name }) => name,
    ({ name }) => element("li", {}, element("span", { class: "name" }, name), element("span", { class: "share-bar" }), element("b")),
    (node, { num_blocks }) => {
      node.children[1].style.setProperty("--share", num_blocks / most);
      setText(node.children[2], `${count(num_blocks)} blocks`);
    },
  );
}

/** Show what each key uses. */
export function showKeys({ now }) {
  byId("no-keys").hidden = now.keys.length > 0;
  byId("key-table").hidden = now.keys.length === 0;
  keep(
    byId("keys"),
    now.keys,
    (_use, index) => index, // as names may repeat
    () => element("tr", {}, element("th", { scope: "row" }), ...Array.from({ length: 7 }, () => element("td"))),
    (node, use) => {
      const numbers = [
        use.num_running, use.minute_requests, use.minute_tokens,
        use.hour_requests, use.hour_prompt_tokens, use.hour_cached_tokens, use.hour_output_tokens,
      ];
      setText(node.children[0], use.key || "no key");
      numbers.forEach((value, index) => setText(node.children[index + 1], count(value)));
    },
  );
}

/** A bar of shares, [name, share, amount] each, with a legend. */
function showShares(parent, parts, title) {
  if (parent.childElementCount === 0) parent.append(element("div", { class: "shares", "aria-hidden": "true" }), element("ul", { class: "legend" }));
  const [bar, legend] = parent.children;
  parent.hidden = parts.length === 0;
  legend.setAttribute("aria-label", title);
  keep(bar, parts, ([name]) => name, ([name]) => element("span", { class: `part ${name}` }), (node, [, share]) => node.style.setProperty("--share", share));
  keep(
    legend,
    parts,
    ([name]) => name,
    ([name]) => element("li", {}, element("span", { class: `part-sample ${name}`, "aria-hidden": "true" }), `${name} `, element("b"), element("span", { class: "quiet" })),
    (node, [, share, amount]) => {
      setText(node.children[1], percent(share));
      setText(node.children[2], amount === undefined ? "" : ` ${amount}`);
    },
  );
}
