"use strict";

/* Draws the charts, whose JSON is in the page, in the colors of the page. */

const touch = matchMedia("(hover: none)").matches;
const fixed = { responsive: true, showTips: false, displaylogo: false, displayModeBar: false };
const buttons = [["zoomIn2d", "zoomOut2d", "resetScale2d"]];
const movable = { ...fixed, displayModeBar: true, modeBarButtons: buttons };
const charts = [...document.querySelectorAll(".chart")].map((node) => {
  const json = node.querySelector("script");
  json.remove();
  return { node, ...JSON.parse(json.textContent) };
});

function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const family = getComputedStyle(document.body).fontFamily;
  const font = { color: color("ink"), family, size: 12 };
  const muted = { ...font, color: color("muted") };
  const line = color("line");
  const axis = { gridcolor: line, linecolor: line, tickcolor: line, tickfont: muted };
  return {
    ...layout,
    dragmode: touch ? false : layout.dragmode, // a finger scrolls the page
    font,
    modebar: { bgcolor: "transparent", color: color("muted"), activecolor: color("ink") },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    hoverlabel: { bgcolor: color("panel"), bordercolor: line, font },
    annotations: layout.annotations?.map((note) => ({ ...note, font: muted })),
    xaxis: { ...layout.xaxis, ...axis },
    yaxis: { ...layout.yaxis, ...axis },
  };
}

function draw() {
  for (const { node, data, layout } of charts) {
    const copy = structuredClone({ data, layout: themed(layout) }); // plotly changes its input
    Plotly.react(node, copy.data, copy.layout, layout.dragmode ? movable : fixed);
  }
}

function onPaper(printing) {
  document.documentElement.classList.toggle("printing", printing);
  for (const { node, layout } of charts) layout.width = printing ? node.clientWidth : undefined;
  draw();
  if (!printing) charts.forEach(({ node }) => Plotly.Plots.resize(node));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));
draw();
