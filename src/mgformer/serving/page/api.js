// Requests to the service, and the dialog for its API key.

import { $ } from "./dom.js";
import { state } from "./state.js";

const KEY = "mgformer-api-key";
let asking = null; // one dialog, even if several requests are refused
let declined = false;

/** A request that failed; the message can be shown to the user. */
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The models in service, the default first; empty if the service has one model and no list. */
export let models = [];

/** Return the name of the model to ask; null if there is only one. */
export function modelInUse() {
  if (models.length < 2) return null;
  return models.some(({ name }) => name === state.model) ? state.model : models[0].name;
}

/** Return the model to compare with; null if there is none. */
export function otherModel() {
  const isKnown = models.some(({ name }) => name === state.vs);
  return isKnown && state.vs !== modelInUse() ? state.vs : null;
}

export async function learnModels() {
  const found = await ask("models", { model: null }).catch(() => []);
  const isDefault = (one) => Number(Boolean(one.default));
  models = Array.isArray(found) ? found.sort((a, b) => isDefault(b) - isDefault(a)) : [];
}

/** Return the path of a request to a model. */
export function pathFor(path, model) {
  if (!model) return path;
  return `${path}${path.includes("?") ? "&" : "?"}model=${encodeURIComponent(model)}`;
}

/** Return the answer to a GET or, with a body, a POST; throws Failure, or AbortError if aborted. */
export async function ask(path, { body, signal, model = modelInUse() } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const response = await send(pathFor(path, model), body, key, signal);
    if (response.status !== 401) return read(response, signal);
    // If the key has changed meanwhile, another request has already asked for it.
    if (sessionStorage.getItem(KEY) === key) await wantKey(key !== null);
    signal?.throwIfAborted();
  }
}

/** Whether requests need an API key. */
export const hasKey = () => sessionStorage.getItem(KEY) !== null;

async function send(path, body, key, signal) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  // A header carries bytes. The service compares them with the key in UTF-8.
  if (key) headers["X-API-Key"] = String.fromCharCode(...new TextEncoder().encode(key));
  const method = body === undefined ? "GET" : "POST";
  try {
    return await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure(0, "The service cannot be reached. Is it still running?");
  }
}

async function read(response, signal) {
  let answer = null;
  try {
    answer = JSON.parse(await response.text(), exactly);
  } catch (error) {
    if (signal?.aborted) throw error;
  }
  signal?.throwIfAborted();
  if (response.ok && answer !== null) return answer;
  throw new Failure(response.status, inWords(response.status, answer?.error));
}

// Integers of 64 bits do not fit into a number, which has 53 bits. They stay text, and the service
// takes text for the same id.
function exactly(name, value, context) {
  const rounded = Number.isInteger(value) && !Number.isSafeInteger(value);
  return rounded && context ? context.source : value;
}

function inWords(status, said) {
  if (status === 503) return "The service is busy. Try again in a moment.";
  if (status >= 500) return "The service had an internal error. Its log has the details.";
  if (said) return `The service says: ${said}.`;
  return `The answer of the service cannot be read (status ${status}).`;
}

async function wantKey(refused) {
  if (!declined) {
    asking ??= openDialog(refused).finally(() => (asking = null));
    const key = await asking;
    if (key) {
      sessionStorage.setItem(KEY, key);
      return;
    }
    declined = true;
  }
  throw new Failure(401, "The service needs an API key.");
}

function openDialog(refused) {
  const dialog = $("#key");
  const input = $("#key-value");
  if (refused) $("#key-note").textContent = "The key was not accepted. Check it and try again.";
  dialog.classList.toggle("refused", refused);
  input.value = "";
  return new Promise((resolve) => {
    let given = null;
    $("form", dialog).onsubmit = (event) => {
      event.preventDefault();
      given = input.value.trim();
      dialog.close();
    };
    $("button[type=button]", dialog).onclick = () => dialog.close();
    dialog.onclose = () => resolve(given);
    dialog.showModal();
  });
}
