// Heat maps of classic histogram buckets, and timelines of states.

import { element, shape, styleColor } from "./dom.js";
import { displayed, withUnit } from "./format.js";
import { fieldConfig } from "./fields.js";
import { panelSeries, seriesOf } from "./frames.js";

const MOST_LINES = 60;

// Cumulative buckets (label le) become counts of their own; the colour's strength is the root of the share of the largest.
export function heatmap(page, panel, answers) {
  const all = answers.flatMap(({ target, result }) => seriesOf({ ...target, legendFormat: "{{le}}" }, result));
  if (all.some((each) => each.native)) return element("p", { class: "quiet" }, "Native histograms are not drawn here.");
  const bounds = all.filter((each) => each.labels.le !== undefined).map((each) => ({ each, bound: each.labels.le === "+Inf" ? Infinity : Number(each.labels.le) }));
  bounds.sort((left, right) => left.bound - right.bound);
  if (!bounds.length) return null;
  const { from, to, step } = page.time;
  const count = Math.floor((to - from) / step) + 1;
  const cells = bounds.map(() => new Float64Array(count));
  bounds.forEach(({ each }, row) => each.times.forEach((seconds, index) => {
    const place = Math.round((seconds - from) / step);
    if (place >= 0 && place < count && Number.isFinite(each.values[index])) cells[row][place] = each.values[index];
  }));
  for (let row = cells.length - 1; row > 0; row -= 1) for (let column = 0; column < count; column += 1) cells[row][column] = Math.max(0, cells[row][column] - cells[row - 1][column]);
  const used = cells.map((row, index) => [row, index]).filter(([row]) => row.some((value) => value > 0)).map(([, index]) => index);
  if (!used.length) return null;
  const rows = cells.slice(used[0], used[used.length - 1] + 1);
  const labels = bounds.slice(used[0], used[used.length - 1] + 1).map(({ bound }) => withUnit(bound, panel.options?.yAxis?.unit ?? "none"));
  const canvas = element("canvas", { class: "cells", role: "img", "aria-label": panel.title ?? "" });
  const scale = element("div", { class: "scale" }, [...labels].reverse().map((label, index) => (index % Math.ceil(labels.length / 8) === 0 ? element("span", {}, `≤ ${label}`) : element("span", {}, ""))));
  return { node: element("div", { class: "heatmap" }, scale, element("div", { class: "plot" }, canvas, timeScale(page))), mount: () => paint(canvas, rows) };
}

function paint(canvas, rows) {
  const [width, height] = [canvas.clientWidth || 300, canvas.clientHeight || 100];
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const most = rows.reduce((top, row) => row.reduce((high, value) => Math.max(high, value), top), 0);
  context.fillStyle = styleColor("--blue");
  const count = rows[0].length;
  rows.forEach((row, index) => row.forEach((value, column) => {
    if (!value) return;
    context.globalAlpha = 0.12 + 0.88 * Math.sqrt(value / most);
    const x = Math.floor((column / count) * width);
    const y = Math.floor(((rows.length - 1 - index) / rows.length) * height);
    context.fillRect(x, y, Math.ceil(width / count), Math.ceil(height / rows.length));
  }));
  return () => {};
}

function timeScale(page) {
  const clock = (seconds) => new Date(seconds * 1e3).toLocaleTimeString("sv", { hour: "2-digit", minute: "2-digit" });
  const { from, to } = page.time;
  return element("div", { class: "time-scale" }, [0, 1, 2, 3].map((part) => element("span", {}, clock(from + ((to - from) * part) / 3))));
}

export function stateTimeline(page, panel, answers) {
  const all = panelSeries(panel, answers).filter((each) => each.values.length);
  if (!all.length) return null;
  const { from, to, step } = page.time;
  const words = new Map();
  const lines = all.slice(0, MOST_LINES).map((series) => {
    const config = fieldConfig(panel, series);
    const runs = [];
    series.times.forEach((seconds, index) => {
      const shown = displayed(config, series.values[index]);
      const last = runs[runs.length - 1];
      if (last && last.text === shown.text && seconds - last.end <= step * 1.5) last.end = seconds;
      else runs.push({ begin: seconds, end: seconds, ...shown });
      words.set(shown.text, shown.color ?? "var(--blue)");
    });
    const x = (seconds) => Math.max(0, Math.min(100, ((seconds - from) / (to - from)) * 100));
    const parts = runs.map((run) => shape("rect", { x: `${x(run.begin)}%`, width: `${Math.max(0.2, x(run.end + step) - x(run.begin))}%`, y: 0, height: "100%", fill: run.color ?? "var(--blue)" }, shape("title", {}, `${run.text}, ${new Date(run.begin * 1e3).toLocaleTimeString("sv")} to ${new Date(run.end * 1e3).toLocaleTimeString("sv")}`)));
    return element("div", { class: "state" }, element("span", { class: "name", title: series.name }, series.name), shape("svg", { class: "runs", preserveAspectRatio: "none" }, parts));
  });
  if (all.length > lines.length) lines.push(element("div", { class: "quiet" }, `and ${all.length - lines.length} more`));
  const legend = [...words].map(([word, color]) => element("span", { class: "key" }, element("span", { class: "swatch", style: { background: color } }), word));
  return element("div", { class: "scroll states" }, lines, element("div", { class: "state" }, element("span", { class: "name" }, ""), timeScale(page)), element("div", { class: "keys" }, legend));
}
