// Sections of a page (Grafana's rows), each with its panels in a grid of 24 columns.

import { element } from "./dom.js";

const opened = new Map();
const copies = new Map();

export function sectionsOf(page) {
  const groups = [];
  for (const panel of page.model.panels ?? []) {
    if (panel.type === "row") groups.push({ row: panel, panels: [...(panel.panels ?? [])] });
    else {
      if (!groups.length) groups.push({ row: undefined, panels: [] });
      groups[groups.length - 1].panels.push(panel);
    }
  }
  return groups.flatMap((group) => repeatedRows(page, group)).map((group) => section(page, group));
}

function repeatedRows(page, group) {
  const name = group.row?.repeat;
  if (!name) return [group];
  return page.variables.chosenValues(name).slice(0, 16).map((value) => ({ ...group, scoped: { [name]: value } }));
}

function section(page, { row, panels, scoped = {} }) {
  const key = `${row?.id ?? "first"}|${Object.values(scoped).join("|")}`;
  if (!opened.has(key)) opened.set(key, !row?.collapsed);
  const open = opened.get(key);
  const made = { key, open, panels: [] };
  Object.defineProperty(made, "open", { get: () => opened.get(key), set: (value) => opened.set(key, value) });
  if (open) made.panels = panels.flatMap((panel) => repeated(page, panel, scoped));
  const top = Math.min(...made.panels.map((panel) => panel.gridPos?.y ?? 0));
  const title = row ? element("button", { class: "row", type: "button", "aria-expanded": open ? "true" : "false", onclick: () => page.toggle(made) }, `${open ? "▾" : "▸"} ${page.variables.inText(row.title ?? "", scoped)}`) : null;
  const grid = open ? element("div", { class: "grid" }, made.panels.map((panel) => frame(page, panel, top))) : null;
  made.node = element("section", {}, title, grid);
  return made;
}

// A panel for each chosen value, side by side; the same objects at each refresh, so that their state stays.
function repeated(page, panel, scoped) {
  const values = panel.repeat ? page.variables.chosenValues(panel.repeat).slice(0, 16) : [undefined];
  const across = Math.min(values.length, panel.maxPerRow ?? 4) || 1;
  return values.map((value) => {
    const own = value === undefined ? scoped : { ...scoped, [panel.repeat]: value };
    const key = `${panel.id}|${JSON.stringify(own)}`;
    if (!copies.has(key)) copies.set(key, { ...panel, scoped: own, flowing: value !== undefined });
    const copy = copies.get(key);
    if (value !== undefined) copy.gridPos = { ...panel.gridPos, w: Math.floor(24 / across) };
    return copy;
  });
}

function frame(page, panel, top) {
  const { x = 0, y = 0, w = 12, h = 8 } = panel.gridPos ?? {};
  const place = panel.flowing ? { gridColumn: `span ${w}`, gridRow: `span ${h}` } : { gridColumn: `${x + 1} / span ${w}`, gridRow: `${y - top + 1} / span ${h}` };
  const about = page.variables.inText(panel.description ?? "", panel.scoped);
  const explained = element("p", { class: "about", hidden: true }, about);
  const links = (panel.links ?? []).map((link) => element("a", { href: page.variables.inLink(link.url, undefined, panel.scoped), class: "quiet" }, link.title ?? "link"));
  const question = about ? element("button", { type: "button", class: "why", title: about, "aria-label": "What this panel shows", onclick: () => (explained.hidden = !explained.hidden) }, "?") : null;
  panel.body = element("div", { class: "body" });
  panel.frame = element("article", { class: `panel ${panel.type} ${panel.transparent ? "bare" : ""}`, style: place }, panel.title || about ? element("h3", {}, element("span", {}, page.variables.inText(panel.title ?? "", panel.scoped)), links, question) : null, explained, panel.body);
  panel.frame.style.setProperty("--rows", h);
  panel.seen = false;
  return panel.frame;
}
