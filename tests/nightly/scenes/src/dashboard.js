// A scene from the JSON of a dashboard, as Grafana makes one (dashboard-scene/serialization/transformSaveModelToScene).

import {
  DataSourceVariable, EmbeddedScene, QueryVariable, SceneControlsSpacer, SceneDataTransformer, SceneGridItem, SceneGridLayout,
  SceneGridRow, SceneQueryRunner, SceneTimeRange, SceneVariableSet, VariableValueSelectors, VizPanel,
} from "@grafana/scenes";

export function variablesOf(model, chosen) {
  return new SceneVariableSet({
    variables: model.templating.list.map((each) => {
      const common = { name: each.name, label: each.label, hide: each.hide, skipUrlSync: each.skipUrlSync };
      const start = chosen[each.name] ? { value: chosen[each.name], text: chosen[each.name] } : { value: each.current?.value ?? "", text: each.current?.text ?? "" };
      const many = { isMulti: each.multi, includeAll: each.includeAll, allValue: each.allValue, defaultToAll: each.includeAll };
      if (each.type === "datasource") return new DataSourceVariable({ ...common, pluginId: each.query, regex: each.regex });
      if (each.type === "query") {
        return new QueryVariable({ ...common, ...many, ...start, datasource: each.datasource, query: each.query, sort: each.sort, refresh: each.refresh, regex: each.regex, definition: each.definition });
      }
      throw new Error(`variable ${each.name}: the type ${each.type} is not known here`);
    }),
  });
}

function vizPanel(panel, key) {
  const runner = panel.targets?.length
    ? new SceneQueryRunner({ datasource: panel.datasource, queries: panel.targets, maxDataPoints: panel.maxDataPoints ?? undefined, minInterval: panel.interval })
    : undefined;
  const $data = runner && new SceneDataTransformer({ $data: runner, transformations: panel.transformations ?? [] });
  return new VizPanel({
    key, title: panel.title, description: panel.description, pluginId: panel.type, pluginVersion: panel.pluginVersion, options: panel.options ?? {},
    fieldConfig: panel.fieldConfig ?? { defaults: {}, overrides: [] }, displayMode: panel.transparent ? "transparent" : "default", $data,
  });
}

// Every row is drawn open, one below the other, so that each panel is drawn.
export function sceneOf(model, { from, to, chosen }) {
  const groups = [{ panels: [] }];
  for (const panel of model.panels.filter(({ type }) => type !== "text")) { // its panel is in no package
    if (panel.type === "row") groups.push({ row: panel, panels: [...(panel.panels ?? [])] });
    else groups.at(-1).panels.push(panel);
  }
  const children = [], drawn = [];
  let y = 0;
  for (const { row, panels } of groups) {
    const top = Math.min(...panels.map(({ gridPos }) => gridPos.y));
    const begin = y + (row ? 1 : 0);
    const items = panels.map((panel) => {
      const made = vizPanel(panel, `panel-${panel.id}`);
      drawn.push({ panel, made });
      const { x, w, h } = panel.gridPos;
      return new SceneGridItem({ x, y: begin + panel.gridPos.y - top, width: w, height: h, body: made });
    });
    const height = Math.max(0, ...panels.map(({ gridPos }) => gridPos.y + gridPos.h - top));
    if (row) children.push(new SceneGridRow({ title: row.title, isCollapsed: false, isCollapsible: false, y, children: items }));
    else children.push(...items);
    y = begin + height;
  }
  const scene = new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from, to }),
    $variables: variablesOf(model, chosen),
    controls: [new VariableValueSelectors({}), new SceneControlsSpacer()],
    body: new SceneGridLayout({ children, isLazy: false }),
  });
  return { scene, drawn, rows: y };
}
