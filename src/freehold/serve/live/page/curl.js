// The command that repeats a request. It names the key's variable, never the key.

import { key } from "./key.js";

/** A command for a POSIX shell. */
export function curlCommand(body) {
  const url = new URL("v1/chat/completions", document.baseURI);
  const lines = [`curl ${body.stream ? "--no-buffer " : ""}${quoted(url.href)}`, `-H 'Content-Type: application/json'`];
  if (key() !== null) lines.push(`-H "Authorization: Bearer $FREEHOLD_API_KEY"`);
  lines.push(`-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
