// The router: shows one view, and loads what it shows when that changes.

import { ask, learnModels, models } from "./api.js";
import { combobox } from "./combobox.js";
import { $, el } from "./dom.js";
import { takeFeedback } from "./feedback.js";
import { idTag, nameOf, remember, sync } from "./items.js";
import { sentenceOf } from "./landing.js";
import { loadModel } from "./model.js";
import { filterOwn, loadOwn } from "./own.js";
import { filterUser, loadUser } from "./person.js";
import { filterSimilar, loadItem } from "./similar.js";
import { basket, go, readAddress, state, toggle } from "./state.js";
import { limits } from "./toolbar.js";

const PAUSE = 150; // milliseconds to wait for further changes before a request
const NONE = () => {};

const shared = () => [state.hide, state.only, state.k, state.model, state.vs];
const views = {
  users: {
    title: () => state.user ?? "People",
    about: () => [state.user, ...(state.user === null ? [state.model] : [state.like, ...shared()])],
    load: loadUser,
    filter: filterUser,
  },
  history: {
    title: () => "Your list",
    about: () => [state.have, ...shared()],
    load: loadOwn,
    filter: filterOwn,
  },
  item: {
    title: () => nameOf(state.item),
    about: () => [state.item, state[basket()], ...shared()],
    load: loadItem,
    filter: filterSimilar,
  },
  model: { title: () => "Model", about: () => [state.model], load: loadModel, filter: NONE },
};

let shown = null;
let listsUsers = true;

function route() {
  readAddress();
  if (!listsUsers && state.view === "users" && state.user === null)
    return go({ view: "history" }, { replace: true });
  const view = views[state.view];
  const elsewhere = (name) => shown[name] !== state[name];
  const moved =
    shown &&
    (elsewhere("view") || elsewhere("user") || (state.view === "item" && elsewhere("item")));
  shown = state;
  for (const name of Object.keys(views)) $(`#${name}`).hidden = name !== state.view;
  document.title = `${view.title()} · mgformer`;
  sync();
  const about = JSON.stringify(view.about());
  if (about !== view.shows) {
    const pause = view.shows === undefined || moved ? 0 : PAUSE;
    view.shows = about;
    view.load(pause);
  } else view.filter();
  // The focused element is hidden now. A new entry of the browser history starts at its top; for
  // the others the browser restores the position.
  if (moved) heading()?.focus({ preventScroll: true });
  if (moved && history.state === null) scrollTo(0, 0);
  history.replaceState({ seen: true }, "");
  return undefined;
}

const heading = () =>
  [...document.querySelectorAll(`#${state.view} h1`)].find((one) => one.checkVisibility());

combobox($("#landing .combobox"), {
  find: (text, signal) => ask(`users?limit=20&q=${encodeURIComponent(text)}`, { signal }),
  show: (user) => [el("span", { class: "id", dir: "auto" }, String(user))],
  choose: (user) => go({ user: String(user) }),
  none: "No user matches.",
});

combobox($("#history .combobox"), {
  find: async (text, signal) => {
    const items = await ask(`items?limit=30&q=${encodeURIComponent(text)}`, { signal });
    return remember(items).filter(({ item }) => !state.have.includes(String(item)));
  },
  show: ({ item }) => [el("span", { dir: "auto" }, nameOf(item)), " ", idTag(item)].filter(Boolean),
  choose: ({ item }) => toggle("have", String(item)),
  none: "No other item matches.",
});

$(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # is used by the router
  $("#main").focus();
});

async function start() {
  await learnModels();
  try {
    const card = await ask("model");
    listsUsers = card.lists_users;
    limits.k = card.max_k ?? limits.k;
    takeFeedback(card.takes_feedback === true);
    for (const one of document.querySelectorAll(".sentence")) one.textContent = sentenceOf(card);
    const names = models.length > 1 ? models.map(({ name }) => name) : [card.model];
    $("#brief").textContent = [names.join(", "), card.dataset].filter(Boolean).join(" on ");
  } catch {
    // The view that is shown tells what is wrong.
  }
  $("nav [data-view=users]").hidden = !listsUsers;
  $("#history .sentence").hidden = listsUsers;
  addEventListener("hashchange", route);
  route();
}

start();
