// Figures: stat, gauge and bar gauge. A figure is of now; an empty answer is "No data".

import { element, shape } from "./dom.js";
import { displayed, thresholdColor, withUnit } from "./format.js";
import { fieldConfig, linkValues } from "./fields.js";
import { panelSeries, reduced } from "./frames.js";

const MOST_FIGURES = 60;
const LINE = 2; // rows of the grid up to which figures stand side by side, as in Grafana's low and wide panels
const LONG_NAME = 16; // characters; on a phone such a panel has the whole width

function figures(panel, answers) {
  const calculation = panel.options?.reduceOptions?.calcs?.[0] ?? "lastNotNull";
  const found = panelSeries(panel, answers).map((series) => {
    const config = fieldConfig(panel, series);
    const value = reduced(series, calculation);
    return { series, config, value, name: config.displayName ?? series.name, ...displayed(config, value) };
  });
  return found.filter((each) => each.value !== undefined);
}

function linked(page, panel, figure, children) {
  const link = figure.config.links?.[0];
  if (!link || !figure.name.trim()) return children; // words for an empty answer name nothing that has a page
  const values = linkValues({ name: figure.name, value: figure.value, text: figure.text, labels: figure.series.labels });
  return [element("a", { href: page.variables.inLink(link.url, values, panel.scoped), title: link.title ?? "" }, children)];
}

export function stat(page, panel, answers) {
  const all = figures(panel, answers);
  if (!all.length) return null;
  const mode = panel.options?.textMode ?? "auto";
  const named = mode === "value_and_name" || mode === "name" || (mode === "auto" && all.length > 1);
  const shown = all.slice(0, MOST_FIGURES);
  const lines = shown.map((figure) => {
    const parts = [];
    if (named && mode !== "name" && figure.name.trim()) parts.push(element("span", { class: "name" }, figure.name));
    parts.push(element("span", { class: "value", style: { color: figure.color ?? "" } }, mode === "name" ? figure.name : figure.text));
    return element("div", { class: "figure" }, linked(page, panel, figure, parts));
  });
  if (all.length > shown.length) lines.push(element("div", { class: "quiet" }, `and ${all.length - shown.length} more`));
  const long = named && shown.some(({ name }) => name.length > LONG_NAME);
  const stacked = named && panel.options?.wideLayout === false && shown.length === 1 && shown[0].name.trim();
  if (panel.gridPos?.h <= LINE) return element("div", { class: "line" }, lines);
  return element("div", { class: `figures many-${Math.min(shown.length, 4)}${long ? " long" : ""}${stacked ? " stacked" : ""}` }, lines);
}

function share(config, value) {
  const [low, high] = [config.min ?? 0, config.max ?? (config.unit === "percentunit" ? 1 : 100)];
  return Math.max(0, Math.min(1, (value - low) / (high - low || 1)));
}

export function barGauge(page, panel, answers) {
  const all = figures(panel, answers);
  if (!all.length) return null;
  const most = Math.max(...all.map((each) => each.value));
  const rows = all.slice(0, MOST_FIGURES).map((figure) => {
    const config = figure.config.max === undefined && figure.config.unit !== "percentunit" ? { ...figure.config, max: most || 1 } : figure.config;
    const fill = element("span", { class: "fill", style: { width: `${share(config, figure.value) * 100}%`, background: thresholdColor(config, figure.value) ?? "var(--blue)" } });
    return element("div", { class: "bar" }, linked(page, panel, figure, [element("span", { class: "name" }, figure.name), element("span", { class: "track" }, fill), element("span", { class: "value" }, figure.text)]));
  });
  if (all.length > rows.length) rows.push(element("div", { class: "quiet" }, `and ${all.length - rows.length} more`));
  return element("div", { class: "bars" }, rows);
}

export function gauge(page, panel, answers) {
  const all = figures(panel, answers);
  if (!all.length) return null;
  const dials = all.slice(0, 12).map((figure) => {
    const angle = Math.PI * (1 - share(figure.config, figure.value));
    const end = [50 + 40 * Math.cos(angle), 50 - 40 * Math.sin(angle)];
    const arc = (x, y) => `M 10 50 A 40 40 0 0 1 ${x.toFixed(2)} ${y.toFixed(2)}`;
    const dial = shape("svg", { viewBox: "0 0 100 56", class: "dial" },
      shape("path", { d: arc(90, 50), class: "dial-track" }),
      shape("path", { d: arc(...end), class: "dial-fill", stroke: thresholdColor(figure.config, figure.value) ?? "var(--blue)" }));
    const limits = `${withUnit(figure.config.min ?? 0, figure.config.unit)} to ${withUnit(figure.config.max ?? (figure.config.unit === "percentunit" ? 1 : 100), figure.config.unit)}`;
    return element("div", { class: "gauge", title: limits }, linked(page, panel, figure, [dial, element("div", { class: "value", style: { color: figure.color ?? "" } }, figure.text), all.length > 1 ? element("div", { class: "name" }, figure.name) : null]));
  });
  return element("div", { class: "gauges" }, dials);
}
