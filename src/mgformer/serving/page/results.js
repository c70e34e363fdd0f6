// What the views share: a toolbar, the chips of liked and hidden items, and one list for each
// model that is asked.

import { ask, modelInUse, otherModel } from "./api.js";
import { chips } from "./chips.js";
import { $, el, plural } from "./dom.js";
import { learnNames } from "./items.js";
import { showRanked } from "./ranked.js";
import { state } from "./state.js";
import { limits, toolbar } from "./toolbar.js";

const NOTE =
  "Scores order the items of one list. They are no probabilities," +
  " and those of two models cannot be compared.";

/** How many items to ask for. */
export const wanted = () => Math.min(state.k, limits.k);

/**
 * Fill an element of the page with a toolbar and lists.
 *
 * `show(signal, { path, body, subject })` asks, draws, and returns the first answer; lists of the
 * same subject mark the rows that a change has brought in.
 */
export function results(root) {
  const bar = toolbar();
  const picked = el("ul", {
    class: "picked",
    role: "list",
    "aria-label": "Liked and hidden",
    hidden: "",
  });
  const said = el("p", { class: "said sub", role: "status" });
  const hint = el("button", { type: "button", class: "link hint" }, "About the bars");
  const tip = el("span", { class: "tip", role: "tooltip", id: `${root.id}-tip` });
  hint.setAttribute("aria-describedby", tip.id);
  const help = el("span", { class: "help", hidden: "" }, hint, tip);
  const lists = el("div", { class: "lists" });
  root.append(picked, bar.element, el("div", { class: "over-list" }, said, help), bar.note, lists);
  lists.append(listOf());
  const showChips = chips(picked, root);
  let unknown = new Set();
  let last = { key: null, ids: [] };

  async function show(signal, { path, body, subject, say }) {
    bar.sync();
    showChips(unknown);
    const models = [modelInUse(), otherModel()].slice(0, otherModel() ? 2 : 1);
    const answers = await Promise.all(models.map((model) => ask(path, { body, signal, model })));
    const found = answers.map((answer) => (Array.isArray(answer) ? answer : answer.items));
    const shown = found.map((items) =>
      items.filter(({ item }) => !state.hide.includes(String(item))),
    );
    while (lists.children.length > models.length) lists.lastChild.remove();
    while (lists.children.length < models.length) lists.append(listOf());
    lists.classList.toggle("two", models.length > 1);
    const key = JSON.stringify([subject, models, state.k]);
    const scales = shown.map((items, place) => {
      const part = lists.children[place];
      $("h3", part).textContent = models.length > 1 ? models[place] : "";
      return showRanked($("ol", part), items, {
        before: last.key === key ? last.ids[place] : null,
        other: shown[1 - place] ?? null,
        otherName: models[1 - place],
      });
    });
    last = { key, ids: shown.map((items) => new Set(items.map(({ item }) => String(item)))) };
    help.hidden = !shown[0].length || models.length > 1;
    tip.textContent = `${scales[0]?.words ?? ""} ${NOTE}`;
    bar.requests(models.map((model) => ({ path, body, model })));
    bar.filter(lists);
    unknown = new Set((answers[0].unknown ?? []).map(String));
    showChips(unknown);
    said.textContent = models.length > 1 ? agreement(last.ids, models) : say(answers[0], shown[0]);
    return answers[0];
  }

  /** Load the names on the chips, which an address does not have. */
  async function learn(ids, signal) {
    await learnNames(
      ids.filter((id) => !unknown.has(id)),
      signal,
    );
    showChips(unknown);
  }
  const filter = () => bar.filter(lists);
  return { show, filter, learn, chips: () => showChips(unknown) };
}

const listOf = () =>
  el("div", { class: "list" }, el("h3", {}), el("ol", { class: "ranked", role: "list" }));

function agreement([one, other], models) {
  const both = [...one].filter((id) => other.has(id)).length;
  const of = Math.max(one.size, other.size);
  return `${models[0]} and ${models[1]} agree on ${both} of ${plural(of, "item")}.`;
}
