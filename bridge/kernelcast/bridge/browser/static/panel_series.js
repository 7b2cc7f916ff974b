// Graphs over time, drawn with uPlot (MIT licence, uplot.LICENSE.txt). The legend and the tooltip are text nodes of our own.

import { element, replace, styleColor } from "./dom.js";
import { PALETTE, namedColor, withUnit } from "./format.js";
import { fieldConfig, linkValues } from "./fields.js";
import { panelSeries, reduced } from "./frames.js";

const MOST_SERIES = 40;
const OLD_SECONDS = 60;
const HOUR = 3600;
// uPlot's own steps go from one minute to five: a small graph of five minutes had one label.
const LETTER = 6.6; // pixels of a letter beside the axis
const TIME_STEPS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 6 * HOUR, 8 * HOUR, 12 * HOUR, ...[1, 2, 3, 5, 10, 30].map((days) => days * 24 * HOUR)];
const solid = (color) => (color.startsWith("var(") ? styleColor(color.slice(4, -1)) : color);

export function timeseries(page, panel, answers) {
  const all = panelSeries(panel, answers);
  if (!all.some((each) => each.values.some((value) => !Number.isNaN(value)))) return all.some((each) => each.native) ? element("p", { class: "quiet" }, "Native histograms are not drawn here.") : null;
  const ranked = [...all].sort((left, right) => Math.abs(reduced(right) ?? 0) - Math.abs(reduced(left) ?? 0));
  const kept = all.length > MOST_SERIES ? ranked.slice(0, MOST_SERIES) : all;
  const lines = kept.map((series, index) => line(panel, series, index)).filter((each) => !each.config.custom.hideFrom?.viz);
  const holder = element("div", { class: "graph" });
  const legend = legendOf(page, panel, lines.filter((each) => !each.config.custom.hideFrom?.legend), all.length - kept.length);
  const tip = element("div", { class: "tip", hidden: true });
  return { node: element("div", { class: `with-legend ${panel.options?.legend?.placement ?? ""}` }, holder, tip, legend), mount: () => draw(page, panel, lines, holder, tip) };
}

function line(panel, series, index) {
  const config = fieldConfig(panel, series);
  const fixed = config.color?.mode === "fixed" ? namedColor(config.color.fixedColor ?? "text") : undefined;
  return { series, config, name: config.displayName ?? series.name, color: fixed ?? PALETTE[index % PALETTE.length] };
}

function legendOf(page, panel, lines, more) {
  if (panel.options?.legend?.showLegend === false) return null;
  const shown = [...lines].sort((left, right) => (reduced(right.series) ?? -Infinity) - (reduced(left.series) ?? -Infinity));
  const note = more > 0 ? element("p", { class: "quiet" }, `${more} further series with smaller values are not drawn`) : null;
  const swatch = (each) => element("span", { class: "swatch", style: { background: each.color } });
  const figure = (each, which) => withUnit(reduced(each.series, which), each.config.unit, each.config.decimals);
  const last = (each) => [figure(each), ended(page, each.series)];
  if (panel.options?.legend?.displayMode !== "table") {
    const keys = shown.map((each) => element("span", { class: "key", title: `max ${figure(each, "max")}` }, swatch(each), named(page, panel, each), element("span", { class: "quiet number" }, last(each))));
    return element("div", { class: "legend scroll" }, element("div", { class: "keys" }, keys), note);
  }
  const rows = shown.map((each) => element("tr", {},
    element("td", {}, swatch(each), named(page, panel, each)),
    element("td", { class: "number" }, last(each)),
    element("td", { class: "number" }, figure(each, "max"))));
  const head = element("tr", {}, element("th", {}, "Name"), element("th", { class: "number" }, "Last"), element("th", { class: "number" }, "Max"));
  return element("div", { class: "legend scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, rows)), note);
}

// The time of a last value that is not of the end of the graph: it is no figure of now.
function ended(page, series) {
  let place = series.values.length - 1;
  while (place >= 0 && Number.isNaN(series.values[place])) place -= 1;
  const old = place >= 0 && page.time.to - series.times[place] > Math.max(2 * page.time.step, OLD_SECONDS);
  return old ? ` at ${clock(series.times[place], 3600)}` : "";
}

function named(page, panel, { name, series, config }) {
  const link = config.links?.[0];
  if (!link) return name;
  const values = linkValues({ name, value: reduced(series), text: name, labels: series.labels });
  return element("a", { href: page.variables.inLink(link.url, values, panel.scoped), title: link.title ?? "" }, name);
}

// All series on the times of the request: a gap stays a gap.
function aligned(page, lines) {
  const { from, to, step } = page.time;
  const count = Math.floor((to - from) / step) + 1;
  const times = Array.from({ length: count }, (_, index) => from + index * step);
  const columns = lines.map(({ series }) => {
    const column = new Array(count).fill(null);
    series.times.forEach((seconds, index) => {
      const place = Math.round((seconds - from) / step);
      if (place >= 0 && place < count && Number.isFinite(series.values[index])) column[place] = series.values[index];
    });
    return column;
  });
  return [times, ...columns];
}

function stacked(data, lines) {
  const sums = new Map();
  return data.map((column, index) => {
    const stack = index === 0 ? undefined : group(lines[index - 1]);
    if (!stack) return column;
    const below = sums.get(stack) ?? column.map(() => 0);
    const upper = column.map((value, place) => (value === null ? (below[place] ? below[place] : null) : value + below[place]));
    sums.set(stack, upper.map((value) => value ?? 0));
    return upper;
  });
}

function draw(page, panel, lines, holder, tip) {
  const plain = aligned(page, lines);
  const data = stacked(plain, lines);
  const defaults = panel.fieldConfig?.defaults ?? {};
  const custom = defaults.custom ?? {};
  const unit = lines[0]?.config.unit ?? defaults.unit;
  const quiet = styleColor("--quiet");
  const axis = { stroke: quiet, grid: { stroke: styleColor("--line"), width: 1 }, ticks: { stroke: styleColor("--line"), width: 1 }, font: "11px system-ui" };
  const bars = uPlot.paths.bars({ size: [0.9, 60] });
  const order = lines.map((_, index) => index);
  if (lines.some((each) => each.config.custom.stacking?.mode === "normal")) order.reverse();
  const options = {
    width: Math.max(200, holder.clientWidth), height: Math.max(90, holder.clientHeight), legend: { show: false },
    cursor: { sync: { key: "kernelcast" }, points: { size: 5 }, drag: { x: true, y: false } },
    scales: { x: { time: true, range: [page.time.from, page.time.to] }, y: scale(defaults, custom) },
    axes: [{ ...axis, size: 26, space: 56, incrs: TIME_STEPS, values: (_, ticks) => ticks.map((tick) => clock(tick, page.time.to - page.time.from)) }, { ...axis, size: (_, labels) => Math.max(52, 24 + LETTER * Math.max(0, ...(labels ?? []).map((each) => each.length))), values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : withUnit(tick, unit, undefined))) }],
    series: [{}, ...order.map((index) => style(lines[index], bars))],
    bands: bandsOf(lines, order),
    hooks: { draw: [(plot) => marks(page, plot)], setCursor: [(plot) => showTip(plot, plain, lines, tip)], setSelect: [(plot) => page.zoom(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x"))] },
  };
  const plot = new uPlot(options, [data[0], ...order.map((index) => data[index + 1])], holder);
  holder.addEventListener("mouseleave", () => (tip.hidden = true));
  return () => plot.destroy();
}

// The area between two series: where the upper one names the lower one, and in a stack, where each area ends at the one
// below it, as areas on top of each other would mix their colours.
function bandsOf(lines, order) {
  const bands = [];
  order.forEach((index, place) => {
    const below = order.findIndex((other, behind) => behind > place && group(lines[other]) === group(lines[index]));
    if (group(lines[index]) && below >= 0) bands.push({ series: [place + 1, below + 1] });
    const { config, color } = lines[index];
    const lower = order.findIndex((other) => lines[other].name === config.custom.fillBelowTo);
    const stroke = solid(color);
    if (lower >= 0 && /^#[0-9a-f]{6}$/i.test(stroke)) bands.push({ series: [place + 1, lower + 1], fill: `${stroke}${Math.round((config.custom.fillOpacity || 20) * 2.55).toString(16).padStart(2, "0")}` });
  });
  return bands;
}

const group = ({ config }) => (config.custom.stacking?.mode === "normal" ? (config.custom.stacking.group ?? "A") : undefined);
const two = (value) => String(value).padStart(2, "0");

function clock(seconds, range) {
  const time = new Date(seconds * 1e3);
  const day = `${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const hour = `${two(time.getHours())}:${two(time.getMinutes())}`;
  if (range > 4 * 86400) return day;
  if (range > 86400) return `${day} ${hour}`;
  return range <= 600 ? `${hour}:${two(time.getSeconds())}` : hour;
}

function style({ config, color }, bars) {
  const { drawStyle = "line", lineWidth = 1, fillOpacity = 0, lineStyle, showPoints } = config.custom;
  const stroke = solid(color);
  const filled = fillOpacity > 0 && !config.custom.fillBelowTo && /^#[0-9a-f]{6}$/i.test(stroke) ? `${stroke}${Math.round(fillOpacity * 2.55).toString(16).padStart(2, "0")}` : undefined;
  const made = { stroke, width: Math.max(1, lineWidth) * 1.25, fill: filled, points: { show: showPoints === "always" || drawStyle === "points" } };
  if (lineStyle?.fill === "dash") made.dash = lineStyle.dash ?? [8, 6];
  if (lineStyle?.fill === "dot") made.dash = [2, 4];
  if (drawStyle === "bars") made.paths = bars;
  return made;
}

function scale({ min, max }, { scaleDistribution, axisSoftMax, axisSoftMin }) {
  if (scaleDistribution?.type === "log") return { distr: 3, log: scaleDistribution.log === 2 ? 2 : 10 };
  return {
    range: (_, low, high) => {
      if (low === null) return [min ?? 0, max ?? 1];
      const bottom = min ?? Math.min(low, axisSoftMin ?? low);
      const top = max ?? Math.max(high, axisSoftMax ?? high);
      const room = top === bottom ? Math.abs(top) * 0.1 || 1 : (top - bottom) * 0.06;
      return [min ?? (bottom >= 0 && bottom - room < 0 ? 0 : bottom - room), max ?? top + room];
    },
  };
}

// Events (alerts, hints) as dashed lines.
function marks(page, plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3, 3]);
  for (const { seconds, color } of page.events) {
    const x = plot.valToPos(seconds, "x", true);
    ctx.strokeStyle = solid(namedColor(color));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function showTip(plot, data, lines, tip) {
  const { idx, left, top } = plot.cursor;
  if (idx === null || idx === undefined || left < 0 || !plot.over.matches(":hover")) {
    tip.hidden = true;
    return;
  }
  const rows = lines.map((each, index) => ({ ...each, value: data[index + 1][idx] })).filter((each) => each.value !== null && each.value !== undefined);
  rows.sort((one, other) => other.value - one.value);
  const body = rows.slice(0, 12).map((each) => element("div", {}, element("span", { class: "swatch", style: { background: each.color } }), `${each.name}  `, element("strong", {}, withUnit(each.value, each.config.unit, each.config.decimals))));
  replace(tip, element("div", { class: "quiet" }, new Date(data[0][idx] * 1e3).toLocaleTimeString("sv")), body, rows.length > 12 ? `and ${rows.length - 12} more` : null);
  tip.hidden = false;
  const right = left > plot.over.clientWidth / 2;
  Object.assign(tip.style, { left: right ? "" : `${left + 96}px`, right: right ? `${plot.over.clientWidth - left + 24}px` : "", top: `${Math.max(0, Math.min(top, 60))}px` });
}
