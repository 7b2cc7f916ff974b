// One page: reads the model of a dashboard from the bridge, asks its queries, and draws its panels.

import { Unanswered, asked, json } from "./ask.js";
import { element, replace } from "./dom.js";
import { header } from "./header.js";
import { sectionsOf } from "./layout.js";
import { PANELS, isDrawn } from "./panels.js";
import { Variables } from "./variables.js";

const POINTS = 240;
const MOST_EVENTS = 60;
const VARIABLES_MILLISECONDS = 60_000; // values of variables and events change rarely, and cost a query each
const FIRST = "kernelcast-overview";
const SECONDS = { s: 1, m: 60, h: 3600, d: 86400 };

const page = {
  site: undefined, model: undefined, variables: undefined, time: { from: 0, to: 0, step: 15 }, events: [], sections: [],
  parameters: new URLSearchParams(location.search), controller: new AbortController(), timer: 0, answered: 0, failure: "",
  variablesAsked: 0, oldest: undefined, opened: "",
  redraw: (panel) => show(panel),
  zoom: (from, to) => { if (to - from > 1) navigate({ from: Math.round(from * 1e3), to: Math.round(to * 1e3) }); },
  choose: (name, values) => { page.variables.chosen.set(name, values); navigate({}); },
  navigate: (changes) => navigate(changes),
  toggle: (section) => { section.open = !section.open; drawSections(); refresh(); },
};

function duration(text, otherwise) {
  const found = /^(?:now-)?(\d+)([smhd])$/.exec(text ?? "");
  return found ? Number(found[1]) * SECONDS[found[2]] : otherwise;
}

// Where nobody chose a time range: that of the model, or since the first measurement, if that is later.
function opening(now) {
  const own = page.model.time?.from ?? "now-1h";
  const minutes = Math.ceil((now - page.oldest) / 60);
  return minutes * 60 < duration(own, 3600) ? `now-${minutes}m` : own;
}

async function loadOldest() {
  if (page.oldest !== undefined || page.parameters.get("from")) return;
  const range = duration(page.model.time?.from, 3600);
  const step = Math.max(page.site.scrape_interval_seconds, range / POINTS);
  const end = Math.floor(Date.now() / 1e3 / step) * step;
  const found = await asked("query_range", { query: page.site.measured, start: String(end - range), end: String(end), step: String(step) }, page.controller.signal);
  page.oldest = (found[0]?.values?.[0]?.[0] ?? NaN) - step;
}

function setTime() {
  const { site, parameters } = page;
  const now = Date.now() / 1e3;
  const given = page.opened = parameters.get("from") ?? opening(now);
  const until = parameters.get("to") ?? "now";
  const to = /^\d+$/.test(until) ? Number(until) / 1e3 : now - (until === "now" ? 0 : duration(until, 0));
  const from = /^\d+$/.test(given) ? Number(given) / 1e3 : now - duration(given, 3600);
  const scrape = site.scrape_interval_seconds;
  const range = Math.max(scrape, to - from);
  const nice = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];
  const step = Math.max(scrape, nice.find((each) => range / each <= POINTS) ?? 86400);
  const end = Math.floor(to / step) * step;
  // Viewers of the same page ask the same queries: the bridge then asks each of them once.
  page.time = { from: Math.ceil((to - range) / step) * step, to: end, now: (Math.floor(to / scrape) * scrape).toFixed(3), step };
  const seconds = (value) => `${Math.max(1, Math.round(value))}s`;
  const span = new URLSearchParams(["from", "to", "refresh"].filter((name) => parameters.get(name)).map((name) => [name, parameters.get(name)]));
  for (const [name, value] of Object.entries({
    __interval: seconds(step), __interval_ms: String(Math.round(step * 1e3)), __rate_interval: seconds(Math.max(step + scrape, 4 * scrape)),
    __range: seconds(range), __range_s: String(Math.round(range)), __range_ms: String(Math.round(range * 1e3)),
    __from: String(Math.round((to - range) * 1e3)), __to: String(Math.round(to * 1e3)), __url_time_range: span.toString(),
  })) page.variables.builtin.set(name, value);
  page.span = span;
}

function navigate(changes) {
  const wanted = new URLSearchParams(page.parameters);
  for (const name of [...wanted.keys()]) if (name.startsWith("var-")) wanted.delete(name);
  for (const [name, value] of page.variables.parameters()) wanted.append(name, value);
  for (const [name, value] of Object.entries(changes)) value === null ? wanted.delete(name) : wanted.set(name, value);
  if (changes.from !== undefined && changes.to === undefined) wanted.delete("to");
  history.replaceState(null, "", `${location.pathname}?${wanted}`);
  page.parameters = wanted;
  refresh(true);
}

async function ask(panel, target) {
  const { signal } = page.controller;
  const query = page.variables.inQuery(target.expr, panel.scoped);
  if (target.instant) return asked("query", { query, time: page.time.now }, signal);
  const { from, to, step } = page.time;
  return asked("query_range", { query, start: String(from), end: String(to), step: String(step) }, signal);
}

async function load(panel) {
  if (!isDrawn(panel) || panel.type === "text") return;
  const targets = (panel.targets ?? []).filter((target) => !target.hide);
  if (panel.type === "alertlist") targets.push({ refId: "A", instant: true, expr: 'ALERTS{alertstate="firing",alertname!="Watchdog"}' });
  const turn = page.turn;
  try {
    const answers = await Promise.all(targets.map(async (target) => ({ target: { ...target, legendFormat: page.variables.inText(target.legendFormat ?? "", panel.scoped) }, result: await ask(panel, target) })));
    if (turn !== page.turn) return;
    Object.assign(panel, { answers, error: "", drawnTime: { ...page.time } });
    page.answered = Date.now();
    page.failure = "";
  } catch (error) {
    if (error.name === "AbortError" || turn !== page.turn) return;
    Object.assign(panel, { answers: undefined, error: error.message });
    if (error instanceof Unanswered && /answer/.test(error.message)) page.failure = error.message;
  }
  show(panel);
  header(page);
}

// Draws what the last answer holds. What could not be asked is said, and no older figure stays.
function show(panel) {
  panel.unmount?.();
  panel.unmount = undefined;
  if (!panel.body) return;
  const draw = PANELS[panel.type];
  if (!draw) return replace(panel.body, element("p", { class: "quiet" }, `A panel of type ${panel.type} is not drawn here; Grafana draws it.`));
  if (panel.error) return replace(panel.body, element("p", { class: "error" }, panel.error));
  if (!panel.answers && panel.type !== "text") return replace(panel.body, element("p", { class: "quiet" }, "…"));
  let made;
  try {
    made = draw(page, panel, panel.answers ?? []);
  } catch (error) {
    return replace(panel.body, element("p", { class: "error" }, `cannot be drawn: ${error.message}`));
  }
  if (made === null) return replace(panel.body, element("p", { class: "no-data" }, panel.fieldConfig?.defaults?.noValue ?? "No data"));
  replace(panel.body, made.node ?? made);
  if (made.mount) panel.unmount = made.mount();
}

async function loadEvents() {
  const { from, to } = page.time;
  const step = Math.max(page.time.step, (to - from) / 200);
  const lists = (page.model.annotations?.list ?? []).filter((each) => each.enable && each.expr);
  const events = await Promise.all(lists.map(async (each) => {
    const found = await asked("query_range", { query: page.variables.inQuery(each.expr), start: String(from), end: String(to), step: String(step) }, page.controller.signal);
    return found.flatMap(({ values = [] }) => values.filter(([seconds], index) => index === 0 || seconds - values[index - 1][0] > step * 1.5).map(([seconds]) => ({ seconds: Number(seconds), color: each.iconColor, name: each.name })));
  }));
  page.events = events.flat().slice(0, MOST_EVENTS);
}

const visible = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const panel = target.panel;
    panel.seen = isIntersecting;
    if (isIntersecting && panel.turn !== page.turn) loadOrShow(panel);
  }
}, { rootMargin: "200px" });

function loadOrShow(panel) {
  panel.turn = page.turn;
  if (panel.type === "text" || !isDrawn(panel)) show(panel);
  else load(panel);
}

function drawSections() {
  visible.disconnect();
  for (const section of page.sections) for (const panel of section.panels) panel.unmount?.();
  page.sections = sectionsOf(page);
  replace(document.getElementById("main"), page.sections.map((section) => section.node));
  for (const section of page.sections) if (section.open) for (const panel of section.panels) {
    panel.frame.panel = panel;
    visible.observe(panel.frame);
    show(panel);
  }
}

async function refresh(redrawn = false) {
  clearTimeout(page.timer);
  page.controller.abort();
  page.controller = new AbortController();
  page.turn = (page.turn ?? 0) + 1;
  setTime();
  const turn = page.turn;
  try {
    if (redrawn || Date.now() - page.variablesAsked > VARIABLES_MILLISECONDS) {
      await Promise.all([page.variables.load(page.time.now, page.controller.signal), loadOldest()]);
      setTime();
      await loadEvents();
      page.variablesAsked = Date.now();
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    page.failure = error.message;
  }
  if (turn !== page.turn) return;
  if (redrawn || !page.sections.length) drawSections();
  header(page);
  for (const section of page.sections) if (section.open) for (const panel of section.panels) if (panel.seen) loadOrShow(panel);
  const every = Math.max(2, duration(page.parameters.get("refresh") ?? page.model.refresh, 30));
  const wait = every - ((Date.now() / 1e3) % every);
  page.timer = setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", () => refresh(), { once: true }) : refresh()), (wait < 2 ? wait + every : wait) * 1e3);
}

async function begin() {
  const theme = page.parameters.get("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  try {
    page.site = await json("/pages/api/site");
    const uid = decodeURIComponent(location.pathname.split("/")[2] ?? "") || (page.site.dashboards.find((each) => each.uid === FIRST) ?? page.site.dashboards[0]).uid;
    page.model = await json(`/pages/api/dashboards/${encodeURIComponent(uid)}`);
  } catch (error) {
    const pages = (page.site?.dashboards ?? []).map((each) => element("li", {}, element("a", { href: `/pages/${encodeURIComponent(each.uid)}` }, each.title)));
    replace(document.getElementById("main"), element("p", { class: "error" }, error.message), element("ul", {}, pages));
    return;
  }
  document.title = page.model.title;
  page.variables = new Variables(page.model, page.parameters);
  await refresh();
  let last = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === last) return;
    last = innerWidth;
    for (const section of page.sections) if (section.open) section.panels.forEach(show);
  });
}

begin();
