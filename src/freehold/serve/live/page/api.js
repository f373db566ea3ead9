// Requests to the server that gave this page, with the visitor's key. Paths are relative, so that the page also works
// behind something that serves it under a prefix.

import { key } from "./key.js";

/** The server answered with an error. `code` is for machines, `message` for people. */
class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code ?? null;
  }
}

/** The server can't be reached. */
class UnreachableError extends Error {}

/** The JSON at a path. */
export async function get(path, signal) {
  return (await answered(path, { signal })).json();
}

/** The answer to a JSON body. */
export async function post(path, body, signal) {
  return answered(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
}

/** The events of a streamed answer, each parsed, with the milliseconds at which it came. Ends with `[DONE]`. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => Promise.reject(broken(error)));
    if (done) return;
    const atMs = performance.now();
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n");
      if (data === "" || data === "[DONE]") continue;
      const event = JSON.parse(data);
      if (event.error !== undefined) throw new ApiError(response.status, event.error);
      yield { event, atMs };
    }
  }
}

async function answered(path, options) {
  const headers = { ...options.headers, ...(key() ? { authorization: `Bearer ${key()}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    throw broken(error);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error);
}

function broken(error) {
  return error.name === "AbortError" ? error : new UnreachableError("the server can't be reached");
}
