// The views of the page, and the router that shows one of them.

import { ask, askAgain } from "./api.js";
import { showCard } from "./card.js";
import { combobox } from "./combobox.js";
import { $, el, plural } from "./dom.js";
import {
  addButton,
  idTag,
  itemLink,
  learnNames,
  nameOf,
  remember,
  showRanked,
  sync,
} from "./items.js";
import { go, readAddress, state, toggle } from "./state.js";

const PAUSE = 150; // milliseconds to wait for further changes of the history before a request
const FIRST = 12; // items of a user that are shown at first
const MOST = 1000; // items of a user to request; the service allows no more

/** Return a function that runs `work(signal, …)`, aborts the run before, and shows the status. */
function loading(section, work) {
  const status = $(".status", section);
  let controller = null;
  return async function load(...what) {
    controller?.abort();
    const mine = (controller = new AbortController());
    section.setAttribute("aria-busy", "true");
    status.classList.remove("error");
    status.textContent = "Loading…";
    try {
      await work(mine.signal, ...what);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (!(error instanceof Error && "status" in error)) throw error;
      const again = () => {
        askAgain();
        load(...what);
      };
      const button = el("button", { type: "button", class: "quiet", click: again }, "Try again");
      status.classList.add("error");
      status.replaceChildren(error.message, " ", error.status === 404 ? "" : button);
    } finally {
      if (controller === mine) section.setAttribute("aria-busy", "false");
    }
  };
}

/** Replace the message of a 404. */
async function orUnknown(promise, message) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 404) error.message = message;
    throw error;
  }
}

// A user: their items and recommendations.

const loadUser = loading($("#users"), async (signal, user) => {
  if (user === null) {
    await showSomeUsers(signal);
    $("#users .status").textContent = "";
    return;
  }
  const answers = Promise.all([
    ask(`users/${encodeURIComponent(user)}?limit=${MOST}`, { signal }),
    ask("recommend", { body: { user, explain: true }, signal }),
  ]);
  let known;
  let answer;
  try {
    [known, answer] = await orUnknown(answers, `There is no user “${user}”.`);
  } catch (error) {
    $("#user").hidden = true;
    if (error.status === 404) await showSomeUsers(signal);
    throw error;
  }
  $("#some-users").hidden = true;
  $("#user-name").textContent = user;
  showHas(known, FIRST);
  showRanked($("#user-items"), answer.items);
  $("#user-source").textContent = sentence(answer);
  $("#users .status").textContent = "";
  $("#user").hidden = false;
});

async function showSomeUsers(signal) {
  const users = await ask("users?limit=12", { signal });
  const link = (user) => el("a", { class: "chip", "data-user": user }, String(user));
  $("#some-users ul").replaceChildren(...users.map((user) => el("li", {}, link(user))));
  $("#user").hidden = true;
  $("#some-users").hidden = !users.length;
  sync();
}

function showHas({ items, total }, most) {
  remember(items);
  $("#has-title").textContent = `has ${total ? plural(total, "item") : "no items yet"}`;
  const row = ({ item }) => el("li", {}, itemLink(item), " ", idTag(item));
  const more = $("#has-more");
  more.hidden = items.length <= most;
  const all = items.length < total ? "the first" : "all";
  more.textContent = `Show ${all} ${items.length.toLocaleString("en")}`;
  more.onclick = () => {
    showHas({ items, total }, Infinity);
    $(`#has li:nth-child(${most + 1}) a`).focus();
  };
  $("#has").replaceChildren(...items.slice(0, most).map(row));
  sync();
}

/** Return a sentence that says where a list comes from. */
function sentence({ user, source, items, unknown: ignored }) {
  if (!items.length) return "There is nothing left to recommend.";
  const count = plural(items.length, "item");
  if (source === "model") return `${count}, best first, based on what the model learned about this user.`;
  const basis = user === null ? "the items in the history" : "the items this user has";
  if (source === "history") return `${count}, best first, based on ${basis}.`;
  const why = ignored.length ? "The model knows none of these items" : "The history is empty";
  return `${why}, so these are the ${count} that are most popular.`;
}

// A history: the items that were added, and the recommendations for them.

let unknown = new Set();
let drawnHave = "[]";

const loadHistory = loading($("#history"), async (signal, have, pause) => {
  // The pause is inside the work, so that a change of the history aborts an earlier request at once.
  await new Promise((resolve) => setTimeout(resolve, pause));
  signal.throwIfAborted();
  const answer = await ask("recommend", { body: { history: have, explain: true }, signal });
  unknown = new Set(answer.unknown.map(String));
  showRanked($("#history-items"), answer.items);
  $("#history .status").textContent = sentence(answer);
  const note = $("#unknown");
  note.hidden = !unknown.size;
  note.textContent = unknown.size
    ? `The model does not know, and ignores: ${[...unknown].join(", ")}.`
    : "";
  await learnNames(have.filter((id) => !unknown.has(id)), signal);
  showHave(have);
});

function showHave(have) {
  // Rows that look the same are kept: replacing one between press and release would lose the click.
  const looks = JSON.stringify(have.map((id) => [id, nameOf(id), unknown.has(id)]));
  if (looks === drawnHave) return;
  drawnHave = looks;
  const list = $("#have");
  const focused = [...list.children].findIndex((row) => row.contains(document.activeElement));
  const rows = have.map((id) => {
    const label = `Remove ${nameOf(id)}`;
    const click = () => toggle(id);
    const remove = { type: "button", class: "remove", "aria-label": label, click };
    const shown = unknown.has(id)
      ? [el("span", { dir: "auto" }, id), " ", el("span", { class: "tag" }, "unknown")]
      : [itemLink(id), " ", idTag(id)];
    return el("li", {}, el("span", {}, ...shown.filter(Boolean)), el("button", remove, "×"));
  });
  list.replaceChildren(...rows);
  // If the focused button is removed with its row, focus the next one.
  if (focused >= 0) {
    const next = rows[Math.min(focused, rows.length - 1)];
    (next ? $("button", next) : $("#item-search")).focus();
  }
  $("#nothing").hidden = have.length > 0;
  $("#clear").hidden = have.length < 2;
  sync();
}

// An item: similar items.

const loadItem = loading($("#item"), async (signal, item) => {
  const list = $("#similar");
  list.replaceChildren();
  showTitle(item);
  const answer = ask("similar", { body: { item }, signal });
  const items = await orUnknown(answer, "The model does not know this item.");
  await learnNames([item], signal);
  showTitle(item, addButton(item, " to history"));
  showRanked(list, items);
  $("#item .status").textContent = items.length
    ? `${plural(items.length, "item")}, the most similar first.`
    : "No similar items.";
});

function showTitle(item, ...more) {
  $("#item-title").textContent = nameOf(item);
  $("#item-line").replaceChildren(...[idTag(item), ...more].filter(Boolean));
  // The name may arrive after the user has moved to another view.
  if (state.view === "item" && state.item === item) document.title = `${nameOf(item)} · mgformer`;
}

// The model card.

const loadModel = loading($("#model"), async (signal) => {
  showCard(await ask("model", { signal }));
  $("#model .status").textContent = "";
  $("#card").hidden = false;
});

// The router. Each view remembers what it shows, and loads only when that changes.

const views = {
  users: {
    title: () => state.user ?? "Users",
    about: () => JSON.stringify(state.user),
    load: () => loadUser(state.user),
  },
  history: {
    title: () => "History",
    about: () => JSON.stringify(state.have),
    load: (again) => {
      showHave(state.have);
      loadHistory(state.have, again ? PAUSE : 0);
    },
  },
  item: {
    title: () => nameOf(state.item),
    about: () => state.item,
    load: () => loadItem(state.item),
  },
  model: { title: () => "Model", about: () => "", load: () => loadModel() },
};

let shown = null;

function route() {
  readAddress();
  const view = views[state.view];
  const elsewhere = (name) => shown[name] !== state[name];
  const moved = shown && (elsewhere("view") || (state.view === "item" && elsewhere("item")));
  shown = state;
  for (const name of Object.keys(views)) $(`#${name}`).hidden = name !== state.view;
  document.title = `${view.title()} · mgformer`;
  sync();
  if (view.about() !== view.shows) {
    const again = view.shows !== undefined;
    view.shows = view.about();
    view.load(again);
  }
  // The focused element is hidden now. A new entry of the browser history starts at its top; for
  // the others the browser restores the position.
  if (moved) $(`#${state.view} h1`).focus({ preventScroll: true });
  if (moved && history.state === null) scrollTo(0, 0);
  history.replaceState({ seen: true }, "");
}

combobox($("#users .combobox"), {
  find: (text, signal) => ask(`users?limit=20&q=${encodeURIComponent(text)}`, { signal }),
  show: (user) => [el("span", { dir: "auto" }, String(user))],
  choose: (user) => go({ user: String(user) }),
  none: "No user matches.",
});

combobox($("#history .combobox"), {
  find: async (text, signal) => {
    const items = await ask(`items?limit=30&q=${encodeURIComponent(text)}`, { signal });
    return remember(items).filter(({ item }) => !state.have.includes(String(item)));
  },
  show: ({ item }) => [el("span", { dir: "auto" }, nameOf(item)), " ", idTag(item)].filter(Boolean),
  choose: ({ item }) => toggle(String(item)),
  none: "No other item matches.",
});

$("#clear").addEventListener("click", () => {
  go({ have: [] });
  $("#item-search").focus();
});
$(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # is used by the router
  $("#main").focus();
});
addEventListener("hashchange", route);
route();

// The line beside the name is optional, so its errors are not shown.
ask("model").then(
  ({ model, dataset, lists_users: listed }) => {
    $("#brief").textContent = [model, dataset].filter(Boolean).join(" on ");
    if (listed) return;
    $("nav [data-view=users]").hidden = true;
    if (state.view === "users") go({ view: "history", user: null });
  },
  () => {},
);
