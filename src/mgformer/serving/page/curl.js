// A request as a command line of curl.

import { hasKey, pathFor } from "./api.js";

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Return the command for a POST. The key is not shown: the shell has it in a variable. */
export function curlOf({ path, body, model }) {
  const to = new URL(pathFor(path, model), location.href).href;
  return [
    `curl ${quoted(to)}`,
    "-H 'Content-Type: application/json'",
    ...(hasKey() ? ['-H "X-API-Key: $MGFORMER_API_KEY"'] : []),
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

/** Copy a text; returns whether the browser allowed it. It needs HTTPS or this machine. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
