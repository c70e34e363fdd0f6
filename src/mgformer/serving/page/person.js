// A person: what is recommended to them, and what they have.

import { ask } from "./api.js";
import { $, el, plural } from "./dom.js";
import { idTag, itemLink, remember, sync } from "./items.js";
import { filtered } from "./filters.js";
import { avatar, showPeople } from "./landing.js";
import { loading, orUnknown } from "./loading.js";
import { results, wanted } from "./results.js";
import { sentence } from "./sentence.js";
import { state } from "./state.js";

const FIRST = 12; // items of a user that are shown at first
const MOST = 1000; // items of a user to request; the service allows no more

const list = results($("#user-results"));
let known = null; // the items of the user who was shown last

export const filterUser = () => list.filter();

export const loadUser = loading($("#users"), async (signal, pause) => {
  const { user, like, hide, model } = state;
  $("#landing").hidden = user !== null;
  $("#user").hidden = user === null;
  if (user === null) {
    await showPeople(signal);
    return;
  }
  $("#user-name").replaceChildren(user);
  $("#user-name").title = user;
  $("#user-mark").replaceChildren(avatar(user));
  await new Promise((resolve) => setTimeout(resolve, pause));
  signal.throwIfAborted();
  const body = { user, k: wanted(), explain: true, ...(await filtered(signal)) };
  if (like.length) body.history = like;
  if (hide.length) body.exclude = hide;
  const path = `users/${encodeURIComponent(user)}?limit=${MOST}`;
  const isSame = known?.for === JSON.stringify([user, model]);
  const answers = Promise.all([
    isSame ? known : ask(path, { signal }),
    list.show(signal, { path: "recommend", body, subject: user, say: sentence }),
  ]);
  let owned;
  try {
    [owned] = await orUnknown(answers, `There is no user “${user}”.`);
  } catch (error) {
    if (error.status !== 404) throw error;
    $("#user").hidden = true;
    await showLanding(signal);
    throw error;
  }
  if (!isSame) showHas(owned, FIRST);
  known = { ...owned, for: JSON.stringify([user, model]) };
  await list.learn([...like, ...hide], signal);
});

async function showLanding(signal) {
  $("#landing").hidden = false;
  await showPeople(signal);
}

function showHas({ items, total }, most) {
  remember(items);
  $("#has-title").textContent = `Has ${total ? plural(total, "item") : "no items yet"}`;
  // The service gives the latest item last, if it knows the order.
  const row = ({ item }) => el("li", {}, itemLink(item), " ", idTag(item));
  const more = $("#has-more");
  more.hidden = items.length <= most;
  const all = items.length < total ? "the first" : "all";
  more.textContent = `Show ${all} ${items.length.toLocaleString("en")}`;
  more.onclick = () => {
    showHas({ items, total }, Infinity);
    $(`#has li:nth-child(${most + 1}) a`).focus();
  };
  $("#has").replaceChildren(...items.toReversed().slice(0, most).map(row));
  sync();
}
