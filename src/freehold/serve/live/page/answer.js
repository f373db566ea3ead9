// One answer of the playground: what the API sent, token by token, with when it came.

import { events, post } from "./api.js";

/** What is known of an answer. It grows while it streams. */
export class Answer {
  constructor(body) {
    this.body = body;
    this.text = "";
    this.reasoning = "";
    this.tokens = []; // {id, text, bytes, logprob, top, sinceMs: since the token before, null if not measured}
    this.promptIds = [];
    this.promptTexts = []; // what its tokens write, once that was asked for
    this.usage = null;
    this.finishReason = null;
    this.error = null;
    this.requestId = null;
    this.seed = null;
    this.firstTokenMs = null;
    this.totalMs = null;
    this.state = "waiting"; // then "streaming", and at last "done", "stopped" or "failed"
  }

  /** Prompt tokens whose keys and values were reused: the prompt's first ones. */
  get numCached() {
    return this.usage?.prompt_tokens_details?.cached_tokens ?? 0;
  }

  get isRunning() {
    return this.state === "waiting" || this.state === "streaming";
  }
}

/** Ask for the answer. Ends when it has ended, however it did; `onChange` is called whenever something came. */
export async function fetchAnswer(answer, signal, onChange) {
  const sentMs = performance.now();
  const clock = { sentMs, lastMs: sentMs };
  try {
    const response = await post("v1/chat/completions", answer.body, signal);
    answer.requestId = response.headers.get("x-request-id");
    answer.seed = response.headers.get("x-seed");
    answer.state = "streaming";
    if (answer.body.stream) {
      for await (const { event, atMs } of events(response)) {
        takeChunk(answer, event, atMs, clock);
        onChange();
      }
    } else {
      takeWhole(answer, await response.json());
    }
    answer.state = "done";
  } catch (error) {
    answer.state = signal.aborted ? "stopped" : "failed";
    if (!signal.aborted) answer.error = error;
  }
  answer.totalMs = performance.now() - sentMs;
  onChange();
}

/** Texts of the prompt's tokens, where the key may ask for them. */
export async function fetchPromptTexts(answer) {
  const { model, messages } = answer.body;
  const body = { model, messages, return_token_texts: true };
  const told = await (await post("tokenize", body)).json();
  if (answer.promptIds.length === 0) answer.promptIds = told.tokens;
  if (String(told.tokens) === String(answer.promptIds)) answer.promptTexts = told.token_texts;
}

function takeChunk(answer, chunk, atMs, clock) {
  if (chunk.usage) answer.usage = chunk.usage;
  if (chunk.prompt_token_ids) answer.promptIds = chunk.prompt_token_ids;
  for (const choice of chunk.choices) {
    answer.text += choice.delta.content ?? "";
    answer.reasoning += choice.delta.reasoning_content ?? "";
    answer.finishReason = choice.finish_reason ?? answer.finishReason;
    const tokens = tokensOf(choice);
    if (tokens.length === 0) continue;
    answer.firstTokenMs ??= atMs - clock.sentMs;
    for (const token of tokens) {
      answer.tokens.push({ ...token, sinceMs: atMs - clock.lastMs });
      clock.lastMs = atMs;
    }
  }
}

function takeWhole(answer, whole) {
  const [choice] = whole.choices;
  answer.usage = whole.usage;
  answer.promptIds = whole.prompt_token_ids ?? [];
  answer.text = choice.message.content ?? "";
  answer.reasoning = choice.message.reasoning_content ?? "";
  answer.finishReason = choice.finish_reason;
  answer.tokens = tokensOf(choice).map((token) => ({ ...token, sinceMs: null }));
}

/** Ids and log probabilities of a choice, joined: there is one of each for every token. */
function tokensOf(choice) {
  const ids = choice.token_ids ?? [];
  const scores = choice.logprobs?.content ?? [];
  return Array.from({ length: Math.max(ids.length, scores.length) }, (_, index) => ({
    id: ids[index] ?? null,
    text: scores[index]?.token ?? null,
    bytes: scores[index]?.bytes ?? null,
    logprob: scores[index]?.logprob ?? null,
    top: scores[index]?.top_logprobs ?? [],
  }));
}
