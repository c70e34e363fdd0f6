// Filters by attributes of items: a choice for each attribute above a list, and chips of what was
// chosen. Values of one attribute are alternatives; different attributes must all hold.

import { ask } from "./api.js";
import { el } from "./dom.js";
import { go, state } from "./state.js";

const KINDS = ["category", "categories", "flag"];
const MOST = 4; // attributes to choose from
let columns = null; // what the service can filter by

const coded = (name, value) => `${encodeURIComponent(name)}:${value}`;

function decoded(one) {
  const at = one.indexOf(":");
  return [decodeURIComponent(one.slice(0, at)), one.slice(at + 1)];
}

/** Return the part of a request that filters, and asks for attributes if there are any. */
export async function filtered(signal) {
  columns ??= await ask("attributes", { signal });
  if (!columns.length) return {};
  const chosen = new Map();
  for (const one of state.only) {
    const [name, value] = decoded(one);
    chosen.set(name, [...(chosen.get(name) ?? []), value]);
  }
  const parts = [...chosen].map(([name, values]) => ({ [name]: comparison(name, values) }));
  return { attributes: true, ...(parts.length ? { where: { and: parts } } : {}) };
}

function comparison(name, values) {
  const kind = columns.find((column) => column.name === name)?.kind;
  if (kind === "categories") return { has: values };
  if (kind === "flag") return { "=": values.at(-1) === "true" };
  return { in: values };
}

/** Make the choices and the chips. */
export function attributeFilters() {
  const element = el("span", { class: "attributes" });
  let drawn = "";
  function sync() {
    // Similar items are not filtered.
    if (state.view === "item") return;
    const offered = (columns ?? []).filter(({ kind }) => KINDS.includes(kind)).slice(0, MOST);
    const looks = JSON.stringify([offered.map(({ name }) => name), state.only]);
    if (looks === drawn) return;
    drawn = looks;
    element.replaceChildren(...state.only.map(chip), ...offered.map(choice));
  }
  return { element, sync };
}

function choice({ name, values }) {
  const left = values.filter(({ value }) => !state.only.includes(coded(name, value)));
  const options = left.map(({ value, count }) =>
    el("option", { value: String(value) }, `${value} (${count.toLocaleString("en")})`),
  );
  const add = () => go({ only: [...state.only, coded(name, field.value)] });
  const field = el(
    "select",
    { class: "attribute", "aria-label": `Only ${name}`, change: add },
    el("option", { value: "" }, `${name}: any`),
    ...options,
  );
  return field;
}

function chip(one) {
  const [name, value] = decoded(one);
  const words = `Remove the filter ${name}: ${value}`;
  const click = () => go({ only: state.only.filter((other) => other !== one) });
  const remove = { type: "button", class: "remove", "aria-label": words, title: words, click };
  return el(
    "span",
    { class: "pick only" },
    el("span", { class: "mark" }, name),
    el("span", { class: "name", dir: "auto" }, value),
    el("button", remove, "×"),
  );
}

/** Show what is known about an item, in one line. */
export function factsOf(attributes) {
  const known = Object.values(attributes ?? {}).filter((value) => value !== null && value !== "");
  const words = known.flatMap((value) => (Array.isArray(value) ? value.join(", ") : String(value)));
  const short = words.filter((text) => text && text.length <= 80);
  return short.length ? el("p", { class: "facts sub" }, short.join(" · ")) : null;
}
