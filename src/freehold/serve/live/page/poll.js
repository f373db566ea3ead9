// Asking again and again: each second while all is well, ever more rarely while the server can't be reached, never while nobody looks.

const EVERY_MS = 1000;
const MAX_WAIT_MS = 30000;

/** Calls `ask` until the page is closed. `ask` throws if it fails; `onWait` is told how many milliseconds it waits then. */
export class Poll {
  constructor(ask, onWait) {
    this.ask = ask;
    this.onWait = onWait;
    this.numFailures = 0;
    this.timer = null;
    this.isAsking = false;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.rest() : this.now()));
  }

  /** Ask at once, whatever was planned. */
  async now() {
    this.rest();
    if (this.isAsking) return;
    this.isAsking = true;
    let waitMs = EVERY_MS;
    try {
      await this.ask();
      this.numFailures = 0;
    } catch (error) {
      waitMs = Math.min(MAX_WAIT_MS, EVERY_MS * 2 ** this.numFailures);
      this.numFailures += 1;
      this.onWait(error, waitMs);
    }
    this.isAsking = false;
    if (!document.hidden) this.timer = setTimeout(() => this.now(), waitMs);
  }

  /** Ask no more until `now`. */
  rest() {
    clearTimeout(this.timer);
  }
}
