"use strict";

/* Draws the figures, whose JSON stands beside them, in the colours of the page. */

const touched = matchMedia("(hover: none)").matches;
const fixed = { responsive: true, showTips: false, displaylogo: false, displayModeBar: false };
const movable = {
  ...fixed,
  displayModeBar: true,
  modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"]],
};
const figures = [...document.querySelectorAll(".chart")].map((node) => {
  const description = node.querySelector("script");
  const figure = JSON.parse(description.textContent);
  description.remove();
  return { node, ...figure };
});

function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = { gridcolor: color("line"), linecolor: color("line"), tickcolor: color("line") };
  const font = {
    color: color("ink"),
    family: getComputedStyle(document.body).fontFamily,
    size: 12,
  };
  const muted = { ...font, color: color("muted") };
  return {
    ...layout,
    // A finger that moves over a figure scrolls the page.
    dragmode: touched ? false : layout.dragmode,
    font,
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("muted"), activecolor: color("ink") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { bgcolor: color("panel"), bordercolor: color("line"), font },
    annotations: layout.annotations?.map((note) => ({ ...note, font: muted })),
    xaxis: { ...layout.xaxis, ...axis, tickfont: muted },
    yaxis: { ...layout.yaxis, ...axis, tickfont: muted },
  };
}

function draw() {
  for (const { node, data, layout } of figures) {
    const copy = structuredClone({ data, layout: themed(layout) }); // plotly writes into it
    Plotly.react(node, copy.data, copy.layout, layout.dragmode ? movable : fixed);
  }
}

function onPaper(printing) {
  document.documentElement.classList.toggle("printing", printing);
  for (const { node, layout } of figures) {
    layout.width = printing ? node.clientWidth : undefined;
  }
  draw();
  if (!printing) figures.forEach(({ node }) => Plotly.Plots.resize(node));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));
draw();
