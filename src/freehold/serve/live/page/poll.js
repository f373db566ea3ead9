// Asking again and again: each second while all is well, ever more rarely while the server can't be reached, never while nobody looks.

const EVERY_MS = 1000;
const MAX_WAIT_MS = 30000;

/** Calls `ask` until the page is closed. It throws if it fails; `onFail` is then told the error and the milliseconds until
 * the next try, or null if there is none: whoever isn't let in needs another key first. */
export class Poll {
  constructor(ask, onFail) {
    this.ask = ask;
    this.onFail = onFail;
    this.numFailures = 0;
    this.timer = null;
    this.isAsking = false;
    this.isWanted = false; // anew, as soon as this answer is there
    document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.now()));
  }

  /** Ask at once, whatever was planned. */
  async now() {
    this.rest();
    this.isWanted = this.isAsking;
    if (this.isAsking) return;
    this.isAsking = true;
    const waitMs = await this.tried();
    this.isAsking = false;
    if (this.isWanted) this.now();
    else if (waitMs !== null && !document.hidden) this.timer = setTimeout(() => this.now(), waitMs);
  }

  /** Ask no more until `now`. */
  rest() {
    clearTimeout(this.timer);
  }

  /** Ask; the milliseconds until the next time, or null. */
  async tried() {
    try {
      await this.ask();
      this.numFailures = 0;
      return EVERY_MS;
    } catch (error) {
      const isShutOut = error.status === 401 || error.status === 403;
      const waitMs = isShutOut ? null : Math.min(MAX_WAIT_MS, EVERY_MS * 2 ** this.numFailures);
      this.numFailures += 1;
      this.onFail(error, waitMs);
      return waitMs;
    }
  }
}
