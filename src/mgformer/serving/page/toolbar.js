// Above a list: its length, the filter, the models, and the request as a command.

import { modelInUse, models, otherModel } from "./api.js";
import { copied, curlOf } from "./curl.js";
import { el, icon, plural } from "./dom.js";
import { attributeFilters } from "./filters.js";
import { filterRows } from "./ranked.js";
import { go, state } from "./state.js";

const TERMINAL = "M5 7l5 5-5 5M12 17h7";
const LENGTHS = [5, 10, 20, 50, 100, 200];

/** What the service allows; the page learns it from the model card. */
export const limits = { k: 1000 };

export function toolbar() {
  const length = select("Show", (value) => go({ k: Number(value) }));
  length.label.classList.add("length");
  const model = select("Model", (value) => go({ model: value, vs: null }));
  const other = select("Compare with", (value) => go({ vs: value || null }));
  const text = el("input", {
    type: "search",
    class: "filter",
    placeholder: "Filter this list",
    "aria-label": "Filter this list",
    maxlength: "200",
    spellcheck: "false",
    dir: "auto",
    input: () => go({ filter: text.value }, { replace: true }),
  });
  const copy = el(
    "button",
    { type: "button", class: "quiet copy", "aria-expanded": "false", click: toggleRequest },
    icon(TERMINAL),
    el("span", {}, "Copy as curl"),
  );
  const command = el("pre", {
    class: "curl",
    tabindex: "0",
    "aria-label": "The request behind this list",
  });
  const said = el("span", { class: "sub", role: "status" });
  const request = el("div", { class: "request", hidden: "" }, said, command);
  const matches = el("p", { class: "matches sub", role: "status" });
  const attributes = attributeFilters();
  const filters = el(
    "div",
    { class: "filters", role: "group", "aria-label": "Filters" },
    text,
    attributes.element,
  );
  const element = el(
    "div",
    { class: "toolbar" },
    length.label,
    filters,
    model.label,
    other.label,
    copy,
  );

  async function toggleRequest() {
    request.hidden = !request.hidden;
    copy.setAttribute("aria-expanded", String(!request.hidden));
    if (request.hidden) return;
    const isCopied = await copied(command.textContent);
    said.textContent = isCopied
      ? "Copied. Paste it into a terminal."
      : "The browser does not allow to copy. Select the command:";
    if (!isCopied) getSelection().selectAllChildren(command);
  }

  function sync() {
    attributes.sync();
    const lengths = LENGTHS.filter((k) => k <= limits.k && k !== state.k);
    const all = [...lengths, Math.min(state.k, limits.k)].sort((a, b) => a - b);
    length.set(
      [...new Set(all)].map((k) => [String(k), String(k)]),
      String(Math.min(state.k, limits.k)),
    );
    const names = models.map(({ name }) => [name, name]);
    model.set(names, modelInUse());
    const others = names.filter(([name]) => name !== modelInUse());
    other.set([["", "nothing"], ...others], otherModel() ?? "");
    for (const one of [model, other]) one.label.hidden = models.length < 2;
    if (document.activeElement !== text) text.value = state.filter;
  }

  function filter(lists) {
    if (document.activeElement !== text) text.value = state.filter;
    const counts = [...lists.querySelectorAll(".ranked")].map(filterRows);
    const [matching, total] = counts[0];
    matches.replaceChildren();
    if (!state.filter.trim() || !total) return;
    matches.append(`${matching} of ${plural(total, "item")} match “${state.filter.trim()}”. `);
    const longest = Math.min(LENGTHS.at(-1), limits.k);
    if (state.k >= longest) return;
    const click = () => go({ k: longest });
    matches.append(
      el("button", { type: "button", class: "link", click }, `Look among the best ${longest}`),
    );
  }

  function requests(all) {
    command.textContent = all.map(curlOf).join("\n\n");
    said.textContent = "";
  }
  return { element, note: el("div", { class: "notes" }, request, matches), sync, filter, requests };
}

/** Make a labelled choice; `set` gives its options as pairs of value and text. */
function select(words, choose) {
  const field = el("select", { change: () => choose(field.value) });
  const label = el("label", { class: "choice" }, el("span", {}, words), " ", field);
  let drawn = "";
  function set(options, chosen) {
    const looks = JSON.stringify(options);
    if (looks !== drawn)
      field.replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
    drawn = looks;
    field.value = chosen ?? "";
  }
  return { label, set };
}
