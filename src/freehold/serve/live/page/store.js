// What the server has told: the newest numbers, the last hour, and the requests. The server tells what is new alone.

const MAX_ENDED = 500;

/** Holds it, bounded in size. */
export class Store {
  constructor() {
    this.forget();
  }

  /** Begin anew, as the server or the visitor's key is another one. */
  forget() {
    this.answer = null; // the newest answer as it came
    this.fine = { step_s: 1, at: [], columns: {} };
    this.coarse = { step_s: 15, at: [], columns: {} };
    this.live = [];
    this.ended = [];
  }

  /** The path that tells what is new. */
  get path() {
    return this.answer === null ? "debug/live" : `debug/live?since=${this.answer.cursor}`;
  }

  /** Take in an answer. */
  take(answer) {
    const hasRestarted = this.answer !== null && this.answer.server.started_at !== answer.server.started_at;
    if (hasRestarted) this.forget();
    this.answer = answer;
    append(this.fine, answer.history.fine, 300);
    append(this.coarse, answer.history.coarse, 3600);
    this.live = answer.requests.live;
    this.ended = [...this.ended, ...answer.requests.ended].slice(-MAX_ENDED);
    return hasRestarted;
  }

  /** Points of the last `spanS` seconds: for long spans the coarse ones, and fine ones where there are none yet. */
  points(spanS) {
    if (spanS <= 300) return this.fine;
    const last = this.coarse.at.at(-1) ?? -Infinity;
    const found = this.fine.at.findIndex((at) => at > last);
    const begin = found === -1 ? this.fine.at.length : found;
    const columns = {};
    for (const [name, values] of Object.entries(this.fine.columns)) {
      columns[name] = [...(this.coarse.columns[name] ?? []), ...values.slice(begin)];
    }
    return { at: [...this.coarse.at, ...this.fine.at.slice(begin)], columns };
  }

  /** When the newest answer was given, in Unix seconds of the server. Its numbers may be a second older. */
  get nowS() {
    return this.answer?.cursor ?? 0;
  }

  /** Requests, newest first. */
  get requests() {
    return [...this.live, ...this.ended].sort((a, b) => b.at - a.at);
  }

  /** One request, if it is still known. */
  request(id) {
    return this.requests.find((request) => request.id === id);
  }
}

/** Add the points that are newer than those that are there, and drop those older than `spanS`. */
function append(points, more, spanS) {
  points.step_s = more.step_s;
  const last = points.at.at(-1) ?? -Infinity;
  const begin = more.at.findIndex((at) => at > last);
  if (begin === -1) return;
  const known = points.at.length;
  points.at.push(...more.at.slice(begin));
  const numOld = points.at.findIndex((at) => at > points.at.at(-1) - spanS);
  points.at.splice(0, numOld);
  for (const [name, values] of Object.entries(more.columns)) {
    const column = (points.columns[name] ??= new Array(known).fill(null));
    column.push(...values.slice(begin));
    column.splice(0, numOld);
  }
}
