// An answer in the conversation: its text, its tokens, and what it took.

import { element, setText } from "./dom.js";
import { count, duration, number } from "./format.js";
import { addAnswerChips, chipList, promptChips, tokenDetails } from "./tokens.js";

const ENDS = {
  stop: "ended by itself or at a stop string",
  length: "was cut off at max tokens or the end of the context",
  tool_calls: "calls tools",
};

/** Shows an `Answer`; `update` shows what has come since. */
export class AnswerView {
  constructor(answer) {
    this.answer = answer;
    this.reasoning = element("p", { class: "said reasoning", hidden: true });
    this.text = element("p", { class: "said" });
    this.prompt = element("div", { class: "prompt-tokens" });
    this.promptSummary = element("p", { class: "quiet" });
    this.chips = chipList("Tokens of the answer", (token) => this.choose(token));
    this.details = element("div", { class: "token-details", role: "region", "aria-label": "Chosen token", "aria-live": "polite" });
    this.details.append(element("p", { class: "quiet" }, "Choose a token to see its alternatives and when it came."));
    this.problem = element("p", { class: "problem", hidden: true });
    this.footer = element("ul", { class: "usage", "aria-label": "Usage" });
    this.shownPrompt = "";
    const asTokens = element("div", { class: "tokens-side" }, this.promptSummary, this.prompt, element("h3", {}, "Answer"), this.chips, this.details);
    const asText = element("div", { class: "text-side" }, this.reasoning, this.text);
    this.node = element("article", { class: "turn assistant" }, element("h2", {}, "Model"), asText, asTokens, this.problem, this.footer);
    this.update();
  }

  /** A sentence on how it went. */
  get summary() {
    const { state, error, usage, finishReason } = this.answer;
    if (state === "failed") return error.message;
    if (state === "stopped") return `Stopped after ${count(this.answer.tokens.length)} tokens.`;
    if (state !== "done") return "The answer is on its way.";
    return `The answer has ${count(usage?.completion_tokens)} tokens and ${ENDS[finishReason] ?? `ended: ${finishReason}`}.`;
  }

  update() {
    const { answer } = this;
    this.node.setAttribute("aria-busy", String(answer.isRunning));
    this.node.dataset.state = answer.state;
    setText(this.text, answer.text);
    setText(this.reasoning, answer.reasoning);
    this.reasoning.hidden = answer.reasoning === "";
    addAnswerChips(this.chips, answer.tokens);
    this.showPrompt();
    this.problem.hidden = answer.error === null;
    setText(this.problem, answer.error?.message ?? "");
    this.footer.replaceChildren(...this.facts().map(([name, value]) => element("li", {}, `${name} `, element("b", {}, value))), this.link());
  }

  choose(token) {
    this.details.replaceChildren(tokenDetails(token));
  }

  showPrompt() {
    const { promptIds, promptTexts, numCached, usage } = this.answer;
    const shown = `${promptIds.length} ${promptTexts.length} ${numCached}`;
    if (shown === this.shownPrompt || promptIds.length === 0) return;
    this.shownPrompt = shown;
    const cached = numCached === 0 ? "none of them cached" : `the first ${count(numCached)} reused from the prefix cache (double line)`;
    setText(this.promptSummary, `Prompt of ${count(promptIds.length)} tokens${usage === null ? "" : `, ${cached}`}.`);
    this.prompt.replaceChildren(promptChips(this.answer, (token) => this.choose(token)));
  }

  /** The way to its stages. */
  link() {
    const { requestId } = this.answer;
    return requestId === null ? "" : element("li", {}, element("a", { href: `#request=${encodeURIComponent(requestId)}` }, "Its stages"));
  }

  /** What it took: [name, value]. */
  facts() {
    const { usage, tokens, firstTokenMs, totalMs, seed, state, finishReason } = this.answer;
    const facts = [];
    if (usage !== null) {
      facts.push(["Prompt", count(usage.prompt_tokens)], ["cached", count(this.answer.numCached)]);
      facts.push(["answer", count(usage.completion_tokens)]);
    } else if (tokens.length > 0) {
      facts.push(["Tokens so far", count(tokens.length)]);
    }
    if (firstTokenMs !== null) facts.push(["first token after", duration(firstTokenMs / 1000)]);
    if (totalMs !== null) facts.push(["in all", duration(totalMs / 1000)]);
    if (totalMs !== null && firstTokenMs !== null && tokens.length > 1) {
      facts.push(["tokens/s after the first", number(((tokens.length - 1) * 1000) / Math.max(1, totalMs - firstTokenMs))]);
    }
    if (seed !== null) facts.push(["seed", seed]);
    if (state === "stopped") facts.push(["stopped", "by you"]);
    else if (finishReason !== null) facts.push(["finish reason", finishReason]);
    return facts;
  }
}
