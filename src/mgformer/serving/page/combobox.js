// A search field with a list of results, after the combobox pattern of WAI-ARIA.

import { el, $ } from "./dom.js";

const PAUSE = 150; // milliseconds to wait for further keys before a search

/**
 * @param box the element with the input, the popup, its list and its note
 * @param find (text, signal) => promise of the results
 * @param show (result) => children of its option
 * @param choose (result) => called for the chosen result
 * @param none message if there are no results
 */
export function combobox(box, { find, show, choose, none }) {
  const input = $("input", box);
  const popup = $(".popup", box);
  const list = $("[role=listbox]", box);
  const note = $(".note", box);
  let found = [];
  let active = -1;
  let timer = 0;
  let controller = null;

  function open(isOpen) {
    popup.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen && found.length > 0));
    if (!isOpen) stop();
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    controller?.abort();
    controller = null;
  }

  function activate(place) {
    active = place;
    [...list.children].forEach((option, number) => {
      option.setAttribute("aria-selected", String(number === place));
      if (number === place) option.scrollIntoView({ block: "nearest" });
    });
    if (place < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", list.children[place].id);
  }

  async function search() {
    stop();
    const mine = (controller = new AbortController());
    const text = input.value.trim();
    let problem = none;
    try {
      found = await find(text, mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      [found, problem] = [[], error.message];
    }
    if (controller !== mine) return;
    controller = null;
    const options = found.map((one, place) => {
      const attributes = { role: "option", id: `${list.id}-${place}`, click: () => take(place) };
      return el("li", attributes, ...show(one));
    });
    list.replaceChildren(...options);
    note.textContent = found.length ? "" : problem;
    open(true);
    activate(text && found.length ? 0 : -1);
  }

  function take(place) {
    const chosen = found[place];
    input.value = "";
    open(false);
    activate(-1);
    if (chosen !== undefined) choose(chosen);
  }

  async function pressed(event) {
    const { key } = event;
    if (key === "ArrowDown" || key === "ArrowUp") {
      event.preventDefault();
      if (popup.hidden) return search();
      if (!found.length) return undefined;
      const step = key === "ArrowDown" ? 1 : -1;
      // Up from the field goes to the last option.
      activate((Math.max(active, step < 0 ? 0 : -1) + step + found.length) % found.length);
    } else if (key === "Enter") {
      event.preventDefault();
      // After fast typing, use the results for the current text, not those of an earlier search.
      if (timer || controller) await search();
      if (!popup.hidden && active >= 0) take(active);
    } else if (key === "Escape" && !popup.hidden) {
      event.preventDefault(); // the default would clear the field
      open(false);
    }
    return undefined;
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE);
  });
  input.addEventListener("click", () => popup.hidden && search());
  input.addEventListener("keydown", pressed);
  input.addEventListener("blur", () => open(false));
  // Keep the focus in the field when the popup is clicked; without focus the popup closes.
  popup.addEventListener("mousedown", (event) => event.preventDefault());
}
