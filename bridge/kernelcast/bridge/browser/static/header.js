// The head of a page: other pages, variables, time range, and whether the source of the figures answers.

import { element, replace } from "./dom.js";
import { namedColor } from "./format.js";
import { ALL } from "./variables.js";

let choicesOpen = innerWidth > 760;
const SEVERAL = "\u0000several";
const RANGES = [["now-5m", "5 min"], ["now-15m", "15 min"], ["now-1h", "1 hour"], ["now-6h", "6 hours"], ["now-24h", "1 day"], ["now-7d", "7 days"]];
const REFRESH = [["5s", "5 s"], ["30s", "30 s"], ["5m", "5 min"]];

export function header(page) {
  const { site, model } = page;
  const holder = document.getElementById("head");
  if (holder.contains(document.activeElement) && document.activeElement.matches("select, details[open] *")) return status(page);
  const kept = new URLSearchParams([...page.variables.narrowed(), ...page.span]);
  if (page.parameters.get("theme")) kept.set("theme", page.parameters.get("theme"));
  const tabs = site.dashboards.map((each) => element("a", { href: `/pages/${encodeURIComponent(each.uid)}?${kept}`, title: each.description ?? "", "aria-current": each.uid === model.uid ? "page" : null }, each.title.replace(/^kernelcast\s*\/\s*/, "")));
  replace(holder,
    element("nav", { "aria-label": "Pages" }, element("a", { href: "/", class: "brand" }, "kernelcast"), tabs, theme(page)),
    element("details", { class: "choices", open: choicesOpen, ontoggle: (event) => (choicesOpen = event.target.open) }, element("summary", {}, "Choices"),
      element("div", { class: "tools" }, page.variables.list.filter((each) => Number(each.hide ?? 0) < 2).map((variable) => picker(page, variable)), ranges(page))),
    element("p", { id: "status", role: "status" }));
  status(page);
}

function status(page) {
  const source = "Figures are from Prometheus, through this bridge.";
  const answered = page.answered ? ` Last answer ${new Date(page.answered).toLocaleTimeString("sv")}.` : "";
  const node = document.getElementById("status");
  node.className = page.failure ? "error" : "quiet";
  replace(node, page.failure ? `Nothing on this page is of now: ${page.failure}.${answered}` : `${source}${answered}`, events(page));
}

// What the dashed lines in the graphs are.
function events(page) {
  const kinds = new Map(page.events.map(({ name, color }) => [name, color]));
  const keys = [...kinds].map(([name, color]) => element("span", { class: "event", style: { borderColor: namedColor(color) } }, name));
  return keys.length ? [" Dashed lines: ", ...keys] : null;
}

function picker(page, variable) {
  const chosen = page.variables.chosen.get(variable.name) ?? [];
  const known = page.variables.options.get(variable.name) ?? [];
  if (!known.length && !chosen.length) return null;
  const values = [...new Set([...(variable.includeAll || variable.multi ? [ALL] : []), ...known, ...chosen])];
  const options = values.slice(0, 500).map((value) => element("option", { value, selected: chosen.includes(value) }, page.variables.textOf(variable.name, value) || "–"));
  const several = chosen.length > 1 ? [element("option", { value: SEVERAL, selected: true }, `${chosen.length} chosen`)] : [];
  const select = element("select", { onchange: (event) => event.target.value !== SEVERAL && page.choose(variable.name, [event.target.value]) }, several, options);
  return element("label", {}, element("span", {}, variable.label || variable.name), select);
}

function ranges(page) {
  const current = page.opened;
  const listed = RANGES.some(([value]) => value === current) ? RANGES : [[current, /^\d+$/.test(current) ? "as zoomed" : current.replace("now-", "").replace(/m$/, " min")], ...RANGES];
  const refreshing = page.parameters.get("refresh") ?? page.model.refresh ?? "30s";
  const times = REFRESH.some(([value]) => value === refreshing) ? REFRESH : [[refreshing, refreshing], ...REFRESH];
  const choice = (title, list, value, change) => element("label", {}, element("span", {}, title), element("select", { onchange: (event) => change(event.target.value) }, list.map(([each, text]) => element("option", { value: each, selected: each === value }, text))));
  return [choice("Last", listed, current, (from) => page.navigate({ from })), choice("Refresh", times, refreshing, (refresh) => page.navigate({ refresh }))];
}

function theme(page) {
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const change = () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    page.navigate({ theme: document.documentElement.dataset.theme });
  };
  return element("button", { type: "button", class: "theme", onclick: change, title: "Light or dark" }, dark() ? "☀" : "☾");
}
