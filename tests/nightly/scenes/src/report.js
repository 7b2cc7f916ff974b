// What each panel shows, and what of it Grafana does not know.

import { LoadingState, getValueFormats, standardTransformersRegistry } from "@grafana/data";
import { sceneGraph } from "@grafana/scenes";

import { asked } from "./backend.js";
import { DRAWN_BY } from "./plugins.jsx";

const UNITS = new Set(getValueFormats().flatMap(({ submenu }) => submenu.map(({ value }) => value)));

function element(made) {
  return document.querySelector(`[data-viz-panel-key="${CSS.escape(made.state.key)}"]`);
}

export function reportOf(scene, drawn) {
  const variables = Object.fromEntries(sceneGraph.getVariables(scene).state.variables.map(({ state }) => [state.name, { value: state.value, text: state.text, error: state.error ?? null }]));
  const panels = drawn.map(({ panel, made }) => panelReport(panel, made));
  return { panels, variables, asked: asked.filter(({ error }) => error), thrown: window.thrown, waiting: panels.filter(({ state }) => state !== "Done" && state !== "Error").length };
}

function panelReport(panel, made) {
  const frame = element(made);
  const data = sceneGraph.getData(made).state.data;
  const text = frame?.querySelector('[data-testid="data-testid panel content"]')?.innerText ?? "";
  const title = made.interpolate(made.state.title, undefined, "text");
  return {
    id: panel.id, key: made.state.key, type: panel.type, title, drawn_by: DRAWN_BY[panel.type] ?? "", state: data?.state ?? LoadingState.NotStarted,
    error: data?.errors?.[0]?.message ?? made.state._pluginLoadError ?? null,
    crashed: Boolean(frame?.querySelector('[data-testid*="Alert error"]')), rows: (data?.series ?? []).reduce((sum, { length }) => sum + length, 0),
    beyond: beyond(frame?.querySelector('[role="grid"]')), no_data: /^(No data|No rows)$/m.test(text), text, unknown: [...unknown(panel, made)],
  };
}

// Pixels of a table that need scrolling.
function beyond(grid) {
  return grid ? grid.scrollWidth - grid.clientWidth : 0;
}

function* unknown(panel, made) {
  const registry = made.getPlugin()?.fieldConfigRegistry;
  if (!registry) return;
  const { defaults = {}, overrides = [] } = panel.fieldConfig ?? {};
  const { custom = {}, ...standard } = defaults;
  for (const id of Object.keys(standard)) if (!registry.getIfExists(id)) yield `fieldConfig.defaults.${id}`;
  const paths = registry.list().filter(({ isCustom }) => isCustom).map(({ path }) => path.split(".")[0]);
  for (const path of Object.keys(custom)) if (!paths.includes(path)) yield `fieldConfig.defaults.custom.${path}`;
  for (const { properties } of overrides) for (const { id } of properties) if (!registry.getIfExists(id)) yield `override ${id}`;
  const units = [standard.unit, ...overrides.flatMap(({ properties }) => properties.filter(({ id }) => id === "unit").map(({ value }) => value))];
  for (const unit of units) if (unit !== undefined && !UNITS.has(unit)) yield `unit ${unit}`;
  for (const { id } of panel.transformations ?? []) if (!standardTransformersRegistry.getIfExists(id)) yield `transformation ${id}`;
}
