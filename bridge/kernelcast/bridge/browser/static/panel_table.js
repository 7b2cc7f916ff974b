// Tables, text, and the list of alerts that fire.

import { element } from "./dom.js";
import { displayed, thresholdColor } from "./format.js";
import { fieldConfig, linkValues } from "./fields.js";
import { SOURCE, sorted, tablesOf, transformed } from "./frames.js";

const MOST_ROWS = 200;
const ALERT = /^(Kernelcast\w+|Watchdog)$/; // names of our alerts, whose runbooks this bridge serves
const PHONE = 760; // pixels, as in the style sheet
const FREE_COLUMN = 150; // Grafana's least width of a column without a width of its own

export function table(page, panel, answers) {
  const { table: whole, unknown } = transformed(tablesOf(answers), panel.transformations);
  if (!whole.rows.length) return null;
  const columns = whole.columns.filter((name) => name !== "Time" && name !== "__name__").map((name) => ({ name, config: fieldConfig(panel, { name }) }));
  const empty = ({ name }) => whole.rows.every((row) => row[name] === undefined || row[name] === "");
  // On a phone a column without a value takes the room of those that have one.
  const visible = columns.filter((column) => !column.config.custom.hidden && !column.config.custom.hideFrom?.viz && !(innerWidth <= PHONE && empty(column)));
  const first = panel.options?.sortBy?.[0];
  const state = panel.sort ?? (first ? { field: first.displayName, desc: first.desc } : undefined);
  const ordered = sorted(whole, state);
  for (const column of visible) column.numeric = (column.config.unit && empty(column)) || whole.rows.some((row) => typeof row[column.name] === "number");
  const head = visible.map(({ name, config, numeric }) => {
    const mark = state?.field === name ? (state.desc ? " ↓" : " ↑") : "";
    const sort = () => {
      panel.sort = { field: name, desc: state?.field === name ? !state.desc : true };
      page.redraw(panel);
    };
    return element("th", { scope: "col", class: numeric ? "number" : "", style: width(config), onclick: sort, tabindex: 0 }, config.displayName ?? name, mark);
  });
  const body = ordered.rows.slice(0, MOST_ROWS).map((row) => element("tr", {}, visible.map((column) => cell(page, panel, column, row))));
  const notes = [];
  if (whole.rows.length > MOST_ROWS) notes.push(`${whole.rows.length - MOST_ROWS} further rows are not drawn; narrow the choice above`);
  if (unknown.length) notes.push(`not applied here: ${unknown.join(", ")}`);
  const least = visible.reduce((sum, { config }) => sum + (config.custom.width || config.custom.minWidth || FREE_COLUMN), 0);
  return element("div", { class: "scroll" }, element("table", { style: { tableLayout: "fixed", minWidth: `${least}px` } }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body)), notes.map((note) => element("p", { class: "quiet" }, note)));
}

// A label can hold a number, such as bytes: with a unit it is written as one, as Grafana does.
function measured({ unit }, value) {
  const isNumber = typeof value === "string" && unit && unit !== "string" && value.trim() !== "" && Number.isFinite(Number(value));
  return isNumber ? Number(value) : value;
}

const width = ({ custom }) => (custom.width ? { width: `${custom.width}px` } : {});

function cell(page, panel, { name, config, numeric }, row) {
  const value = measured(config, row[name]);
  const { text, color } = displayed(config, value);
  const options = config.custom.cellOptions ?? {};
  const style = {};
  const content = [];
  if (options.type === "gauge" && text !== "" && typeof value === "number" && !Number.isNaN(value)) {
    const share = Math.max(0, Math.min(1, (value - (config.min ?? 0)) / ((config.max ?? 1) - (config.min ?? 0) || 1)));
    content.push(element("span", { class: "track small" }, element("span", { class: "fill", style: { width: `${share * 100}%`, background: thresholdColor(config, value) ?? "var(--blue)" } })));
  }
  if (options.type === "color-background" && color) Object.assign(style, { background: color, color: "#fff" });
  if (options.type === "color-text" && color) style.color = color;
  content.push(text);
  const link = config.links?.[0] ?? (ALERT.test(value) ? { title: "Runbook", url: `/runbooks/${value}` } : undefined);
  if (!link || value === undefined || value === "") return element("td", { class: numeric ? "number" : "", style, title: text }, content);
  const values = linkValues({ name, value, text, labels: row[SOURCE] ?? row, row: { ...row[SOURCE], ...row } });
  return element("td", { class: numeric ? "number" : "", style, title: text }, element("a", { href: page.variables.inLink(link.url, values, panel.scoped), title: link.title ?? "" }, content));
}

// Markdown is shown as text, a paragraph a line: headings and emphasis lose their marks, links stay visible.
export function text(page, panel) {
  const content = page.variables.inText(panel.options?.content ?? "", panel.scoped);
  if (panel.options?.mode === "html") return element("p", { class: "quiet" }, "HTML of a text panel is not drawn here.");
  const lines = content.split(/\n+/).filter((line) => line.trim());
  return element("div", { class: "prose" }, lines.map((line) => {
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    const plain = (heading ? heading[2] : line).replace(/\*\*|__|`/g, "").replace(/\[([^\]]*)\]\(([^)]*)\)/g, "$1 ($2)");
    return element(heading ? "h4" : "p", {}, plain);
  }));
}

// Alerts that fire now; an empty answer of a Prometheus without rules looks the same, so it is not called calm.
export function alerts(page, panel, answers) {
  const found = answers.flatMap(({ result }) => result.map((each) => each.metric));
  if (!found.length) return null;
  const order = { critical: 0, warning: 1, info: 2 };
  found.sort((left, right) => (order[left.severity] ?? 3) - (order[right.severity] ?? 3) || left.alertname.localeCompare(right.alertname));
  const hidden = new Set(["__name__", "alertname", "alertstate", "severity", "job", "instance"]);
  return element("div", { class: "scroll" }, found.slice(0, MOST_ROWS).map((each) => element("div", { class: `alert ${order[each.severity] === 0 ? "critical" : ""}` },
    element("strong", {}, each.alertname), ` ${each.severity ?? ""} `, element("span", { class: "quiet" }, Object.entries(each).filter(([name]) => !hidden.has(name)).map(([name, value]) => `${name}=${value}`).join(" ")))));
}
