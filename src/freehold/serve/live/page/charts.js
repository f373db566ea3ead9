// Which charts there are, and what of.

import { Chart } from "./chart.js";
import { duration, number, percent } from "./format.js";

const column = (name) => (value) => value(name);

const CHARTS = [
  {
    id: "requests",
    title: "Requests",
    format: number,
    least: 2,
    series: [
      { name: "running", of: column("running") },
      { name: "waiting", of: column("waiting") },
    ],
  },
  {
    id: "ttft",
    title: "Time to first token",
    format: duration,
    series: [
      { name: "p50", of: column("ttft_p50_s") },
      { name: "p90", of: column("ttft_p90_s") },
      { name: "p99", of: column("ttft_p99_s") },
    ],
  },
  {
    id: "ttft-parts",
    title: "First token by part, p90",
    format: duration,
    series: [
      { name: "tokenize", of: column("tokenize_p90_s") },
      { name: "compile", of: column("compile_p90_s") },
      { name: "queue", of: column("queue_p90_s") },
      { name: "prefill", of: column("prefill_p90_s") },
    ],
  },
  {
    id: "itl",
    title: "Inter-token latency",
    format: duration,
    series: [
      { name: "p50", of: column("itl_p50_s") },
      { name: "p90", of: column("itl_p90_s") },
      { name: "p99", of: column("itl_p99_s") },
    ],
  },
  {
    id: "tokens",
    title: "Tokens a second",
    format: number,
    series: [
      { name: "computed", of: column("computed") },
      { name: "output", of: column("output") },
      { name: "cached", of: column("cached") },
      { name: "recomputed", of: column("recomputed") },
    ],
  },
  {
    id: "kv",
    title: "KV cache",
    format: percent,
    isStacked: true,
    max: 1,
    series: [
      { name: "held", of: column("kv_held") },
      { name: "cached", of: column("kv_cached") },
    ],
  },
  { id: "hit-rate", title: "Prefix hit rate", format: percent, max: 1, series: [{ name: "hits", of: column("hit_rate") }] },
  {
    id: "steps",
    title: "Engine time",
    format: percent,
    isStacked: true,
    max: 1,
    series: [
      { name: "run", of: column("run") },
      { name: "plan", of: column("plan") },
      { name: "apply", of: column("apply") },
      { name: "idle", of: column("idle") },
    ],
  },
  {
    id: "trouble",
    title: "Preemptions, refusals, slow clients",
    format: number,
    least: 2,
    series: [
      { name: "preemptions", of: column("preemptions") },
      { name: "refused/s", of: column("rejected") },
      { name: "slow clients", of: column("slow_clients") },
    ],
  },
];

const SPECULATION = {
  id: "speculation",
  title: "Guessed tokens that were right",
  format: percent,
  max: 1,
  series: [{ name: "accepted", of: column("accepted") }],
};

/** All charts in a parent; the one of speculation shows while there is something to show. */
export class Charts {
  constructor(parent) {
    this.charts = CHARTS.map((definition) => new Chart(definition));
    this.speculation = new Chart(SPECULATION);
    this.speculation.node.hidden = true;
    parent.append(...[...this.charts, this.speculation].map(({ node }) => node));
  }

  /** Draw the last `spanS` seconds. */
  update(points, spanS) {
    for (const chart of this.charts) chart.update(points, spanS);
    this.speculation.node.hidden = !points.columns.accepted?.some((value) => value !== null);
    if (!this.speculation.node.hidden) this.speculation.update(points, spanS);
  }
}
