// The playground's sampling parameters: fields of the API by name. What is left empty is not sent, so that the server's default holds.

import { byId, element } from "./dom.js";

const PARAMETERS = [
  { name: "max_tokens", label: "Max tokens", min: 1, step: 1, initial: "200" },
  { name: "temperature", label: "Temperature", min: 0, step: "any", initial: "0.7" },
  { name: "top_p", label: "Top p", min: 0, max: 1, step: "any", initial: "0.9" },
  { name: "top_k", label: "Top k", min: 0, step: 1 },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: "any" },
  { name: "seed", label: "Seed", min: 0, step: 1 },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: "any" },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: "any" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0, step: "any" },
  { name: "top_logprobs", label: "Alternatives per token", min: 0, max: 20, step: 1, initial: "5" },
];

/** Make the inputs. */
export function startParameters() {
  for (const { name, label, min, max, step, initial } of PARAMETERS) {
    const id = `parameter-${name}`;
    const input = element("input", { id, type: "number", min, max, step, value: initial, placeholder: "default", inputmode: "decimal" });
    byId("parameters").append(element("div", { class: "field" }, element("label", { for: id }, label), input));
  }
}

/** The fields that were filled in. */
export function chosenParameters() {
  const chosen = { logprobs: true, return_token_ids: true };
  for (const { name } of PARAMETERS) {
    const input = byId(`parameter-${name}`);
    if (input.value !== "") chosen[name] = input.valueAsNumber;
  }
  const stop = byId("parameter-stop").value;
  if (stop !== "") chosen.stop = stop.split("\n").filter((text) => text !== "");
  chosen.stream = byId("parameter-stream").checked;
  if (chosen.stream) chosen.stream_options = { include_usage: true };
  return chosen;
}
