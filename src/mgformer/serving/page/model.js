// The model in service: what it is, how good it is, how it was trained.

import { ask, modelInUse, models } from "./api.js";
import { barChart, curve, partsChart } from "./charts.js";
import { $, el, figure, plural } from "./dom.js";
import { loading } from "./loading.js";
import { configTable, label, metricTable } from "./tables.js";
import { go } from "./state.js";

const SHOWN = ["recall@20", "ndcg@20", "precision@20", "hitrate@20"];
const GROUPS = [
  ["popular", "the most popular 5% of the items"],
  ["normal", "the next 15%"],
  ["unpopular", "the other 80%"],
];

export const loadModel = loading($("#model"), async (signal) => {
  const card = await ask("model", { signal });
  $("#model-title").textContent = card.model;
  $("#model-about").textContent = card.about ?? "";
  showModels();
  showTiles(card);
  showQuality(card);
  showGroups(card.groups ?? {});
  showCurve(card);
  showFacts(card);
  showTables(card);
  $("#card").hidden = false;
});

/** The choice between several models. */
function showModels() {
  const inUse = modelInUse();
  const one = ({ name, model, share, default: isDefault }) => {
    const about = [
      model !== name && model,
      isDefault && "default",
      share < 1 && share > 0 && `${figure(100 * share)}% of the users`,
    ];
    const click = () => go({ model: name, vs: null });
    const text = about.filter(Boolean).join(" · ");
    return el(
      "button",
      { type: "button", class: "quiet", "aria-pressed": String(name === inUse), click },
      el("b", {}, name),
      " ",
      el("span", { class: "sub" }, text),
    );
  };
  $("#models").hidden = models.length < 2;
  $("#models").replaceChildren(...models.map(one));
}

function showTiles(card) {
  const seconds = card.seconds?.train;
  const tiles = [
    [plain(card.num_users), "people"],
    [plain(card.num_items), "items"],
    [plain(card.num_pairs), "choices"],
    [seconds === undefined ? null : duration(seconds), "of training"],
  ].filter(([value]) => value);
  const tile = ([value, words]) =>
    el("li", {}, el("b", {}, value), el("span", { class: "sub" }, words));
  $("#tiles").replaceChildren(...tiles.map(tile));
}

const plain = (number) => (number ? number.toLocaleString("en") : null);

function duration(seconds) {
  if (seconds < 100) return `${figure(seconds)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${figure(seconds / 3600)} h`;
}

function showQuality({ test = {}, popularity = {} }) {
  const names = SHOWN.filter((name) => test[name] !== undefined);
  const series = [
    ["Model", test],
    ["Popularity", popularity],
  ];
  const rows = names.map((name) => [
    label(name),
    series
      .filter(([, from]) => from[name] !== undefined)
      .map(([words, from]) => [words, from[name]]),
  ]);
  $("#quality").hidden = !rows.length;
  $("#quality-chart").replaceChildren(...(rows.length ? [barChart(rows)] : []));
  $("#verdict").textContent = verdict(test, popularity);
  $("#quality .keys").hidden = !names.some((name) => popularity[name] !== undefined);
}

/** Say how the model stands beside the most popular items, the least that it must beat. */
function verdict(test, popularity) {
  const [ours, theirs] = [test["ndcg@20"], popularity["ndcg@20"]];
  if (ours === undefined || !theirs) return "Measured on choices that the model did not see.";
  const times = ours / theirs;
  if (times < 1) return `The model is worse than recommending the most popular items to everybody.`;
  if (times < 1.05) return "The model is hardly better than the most popular items.";
  const more = times >= 2 ? `${figure(times)} times` : `${Math.round(100 * (times - 1))}% above`;
  return `On choices that it did not see, its NDCG@20 is ${more} that of the most popular items.`;
}

function showGroups(groups) {
  const parts = GROUPS.filter(([name]) => groups[name]?.["recall@20"] !== undefined);
  $("#groups").hidden = parts.length < 2;
  const shown = parts.map(([name, words]) => [words, groups[name]["recall@20"]]);
  $("#groups-chart").replaceChildren(...(parts.length < 2 ? [] : [partsChart(shown)]));
}

function showCurve({ curve: log = [], epochs }) {
  const metric = log.some((entry) => "ndcg@20" in entry) ? "ndcg@20" : "loss";
  const points = log
    .filter((entry) => metric in entry)
    .map((entry) => [entry.epoch, entry[metric]]);
  $("#training").hidden = points.length < 2;
  if (points.length < 2) return;
  const name = metric === "loss" ? "Loss" : "NDCG@20 on validation";
  $("#training-name").textContent = `${name}, by epoch. The mark is the epoch that was chosen.`;
  $("#training-chart").replaceChildren(curve(points, { chosen: epochs, name, across: "epoch" }));
}

function showFacts(card) {
  const again = card.refit && `again on all ${plural(card.refit.pairs, "choice")}, after the test`;
  const refreshed =
    card.refreshed && `${plural(card.refreshed.new_pairs, "new choice")}, without training`;
  const facts = {
    Data: card.dataset,
    Protocol: card.protocol,
    Epochs: card.epochs ? plain(card.epochs) : null,
    Trained: again,
    Refreshed: refreshed,
    Seed: card.seed === undefined ? null : String(card.seed),
    Software:
      [card.library && `mgformer ${card.library}`, card.commit].filter(Boolean).join(", ") || null,
    Bundle: card.bundle && el("code", { title: card.bundle }, card.bundle.slice(0, 8)),
  };
  const known = Object.entries(facts).filter(([, value]) => value);
  $("#facts").replaceChildren(
    ...known.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

function showTables(card) {
  const columns = [
    ["Test", card.test],
    ["Validation", card.valid],
    ["Popularity", card.popularity],
  ];
  const present = columns.filter(([, values]) => values && Object.keys(values).length);
  const all = [...new Set(present.flatMap(([, values]) => Object.keys(values)))];
  $("#more-figures div").replaceChildren(metricTable(all, present));
  $("#more-figures").hidden = !all.length;
  $("#config div").replaceChildren(configTable(card.config ?? {}));
  $("#config").hidden = !card.config;
}
