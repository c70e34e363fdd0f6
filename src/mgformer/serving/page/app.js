// The views of the page, and which of them is shown.

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

const PAUSE = 150; // milliseconds without a change of the history before it is asked about
const FIRST = 12; // items of a user shown before the rest is asked for
const MOST = 1000; // items of a user that the service tells

/** Return a function that runs `work(signal, …)`, drops what it was doing before, and says so. */
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

/** Say in words what a 404 means here. */
async function orUnknown(promise, message) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 404) error.message = message;
    throw error;
  }
}

// A user: what they have, what is recommended.

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
  $("#has-title").textContent = `has ${total ? plural(total, "item") : "nothing yet"}`;
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

/** Say where a list comes from. */
function sentence({ user, source, items, unknown: passedOver }) {
  if (!items.length) return "Nothing is left to recommend.";
  const count = plural(items.length, "item");
  if (source === "model") return `${count}, best first, by what the model learned of this user.`;
  const by = user === null ? "the items in the history" : "the items this user has";
  if (source === "history") return `${count}, best first, by ${by}.`;
  const why = passedOver.length
    ? "The model knows no item of the history"
    : "There is no history to go by";
  return `${why}, so these are the ${count} that most people have.`;
}

// A history: items picked, what follows from them.

let unknown = new Set();
let shownHave = "[]";

const loadHistory = loading($("#history"), async (signal, have, pause) => {
  // Waiting is a part of the work: an answer on its way is dropped as soon as the history changes.
  await new Promise((resolve) => setTimeout(resolve, pause));
  signal.throwIfAborted();
  const answer = await ask("recommend", { body: { history: have, explain: true }, signal });
  unknown = new Set(answer.unknown.map(String));
  showRanked($("#history-items"), answer.items);
  $("#history .status").textContent = sentence(answer);
  const note = $("#unknown");
  note.hidden = !unknown.size;
  note.textContent = unknown.size
    ? `Not known to the model, and left out: ${[...unknown].join(", ")}.`
    : "";
  await learnNames(have.filter((id) => !unknown.has(id)), signal);
  showHave(have);
});

function showHave(have) {
  // Rows that look the same stay: a new one under a finger already down would miss the click.
  const looks = JSON.stringify(have.map((id) => [id, nameOf(id), unknown.has(id)]));
  if (looks === shownHave) return;
  shownHave = looks;
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
  // A button that is gone with its row leaves the focus to the next one.
  if (focused >= 0) {
    const next = rows[Math.min(focused, rows.length - 1)];
    (next ? $("button", next) : $("#item-search")).focus();
  }
  $("#nothing").hidden = have.length > 0;
  $("#clear").hidden = have.length < 2;
  sync();
}

// An item: what is like it.

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
    : "Nothing is similar to it.";
});

function showTitle(item, ...more) {
  $("#item-title").textContent = nameOf(item);
  $("#item-line").replaceChildren(...[idTag(item), ...more].filter(Boolean));
  // The name may come when another view is shown.
  if (state.view === "item" && state.item === item) document.title = `${nameOf(item)} · mgformer`;
}

// The model card.

const loadModel = loading($("#model"), async (signal) => {
  showCard(await ask("model", { signal }));
  $("#model .status").textContent = "";
  $("#card").hidden = false;
});

// Which view is shown. Each remembers what it shows, and asks only for something else.

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
  // Where the focus was is hidden now. An entry not seen before begins at its top; the others
  // are left to the browser, which knows where they were.
  if (moved) $(`#${state.view} h1`).focus({ preventScroll: true });
  if (moved && history.state === null) scrollTo(0, 0);
  history.replaceState({ seen: true }, "");
}

combobox($("#users .combobox"), {
  find: (text, signal) => ask(`users?limit=20&q=${encodeURIComponent(text)}`, { signal }),
  show: (user) => [el("span", { dir: "auto" }, String(user))],
  choose: (user) => go({ user: String(user) }),
  none: "No user has this in the id.",
});

combobox($("#history .combobox"), {
  find: async (text, signal) => {
    const items = await ask(`items?limit=30&q=${encodeURIComponent(text)}`, { signal });
    return remember(items).filter(({ item }) => !state.have.includes(String(item)));
  },
  show: ({ item }) => [el("span", { dir: "auto" }, nameOf(item)), " ", idTag(item)].filter(Boolean),
  choose: ({ item }) => toggle(String(item)),
  none: "No other item has this in its name or id.",
});

$("#clear").addEventListener("click", () => {
  go({ have: [] });
  $("#item-search").focus();
});
$(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # is ours
  $("#main").focus();
});
addEventListener("hashchange", route);
route();

// The line beside the brand is an ornament: what is wrong with the service is said elsewhere.
ask("model").then(
  ({ model, dataset }) => ($("#brief").textContent = [model, dataset].filter(Boolean).join(" on ")),
  () => {},
);
