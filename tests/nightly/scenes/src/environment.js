// What Grafana's core gives its packages: services, registries and the theme. Services are doubles; the processors of
// field options and the transformations are Grafana's own.

import * as data from "@grafana/data";
import * as runtime from "@grafana/runtime";
import { initPluginTranslations } from "@grafana/i18n";
import { PrometheusDatasource } from "@grafana/prometheus";
import { sceneGraph } from "@grafana/scenes";
import { from, map } from "rxjs";

import { Backend } from "./backend.js";
import { plugins } from "./plugins.jsx";

const UID = "prometheus";

// ids, paths and processors as in grafana/grafana, public/app/core/components/OptionsUI/registry.tsx
const STANDARD = {
  unit: data.unitOverrideProcessor, min: data.numberOverrideProcessor, max: data.numberOverrideProcessor,
  fieldMinMax: data.booleanOverrideProcessor, decimals: data.numberOverrideProcessor, displayName: data.displayNameOverrideProcessor,
  color: data.identityOverrideProcessor, noValue: data.displayNameOverrideProcessor, links: data.dataLinksOverrideProcessor,
  actions: data.dataLinksOverrideProcessor, mappings: data.valueMappingsOverrideProcessor, thresholds: data.thresholdsOverrideProcessor,
  filterable: data.booleanOverrideProcessor,
};

const EDITORS = ["text", "number", "slider", "boolean", "select", "multi-select", "radio", "unit", "color", "strings", "stats-picker", "timezone", "field-name"];

export async function prepare({ prometheus, interval, theme: mode = "light" }) {
  await initPluginTranslations("kernelcast-scenes");
  const { config } = runtime;
  config.theme2 = data.createTheme({ colors: { mode } });
  config.featureToggles = {};
  config.bootData = { user: {}, settings: {}, navTree: [] };
  data.standardFieldConfigEditorRegistry.setInit(() => Object.entries(STANDARD).map(([id, process]) => ({
    id, path: id, name: id, process, override: () => null, editor: () => null, shouldApply: () => true, settings: {},
  })));
  data.standardEditorsRegistry.setInit(() => EDITORS.map((id) => ({ id, name: id, editor: () => null })));
  data.standardTransformersRegistry.setInit(() => [...new Map(Object.values(data.standardTransformers).map((each) => [each.id, each])).values()].map((each) => ({
    id: each.id, name: each.name, transformation: async () => each, editor: () => null,
  })));
  data.setLocale?.("en-GB");
  const templates = templateService();
  runtime.setTemplateSrv(templates);
  runtime.setBackendSrv(new Backend(prometheus, interval));
  runtime.setAppEvents(new data.EventBusSrv());
  runtime.setEchoSrv(new runtime.FakeEchoSrv());
  runtime.setLocationSrv({ update: () => {} });
  runtime.setPluginImportUtils({
    importPanelPlugin: async (id) => plugins[id] ?? Promise.reject(new Error(`no panel ${id}`)),
    getPanelPluginFromCache: (id) => plugins[id],
  });
  runtime.setRunRequest(runRequest);
  const meta = { id: "prometheus", name: "Prometheus", type: "datasource", info: { version: "" }, annotations: true, metrics: true };
  const settings = { uid: UID, id: 1, type: "prometheus", name: "Prometheus", url: prometheus, access: "proxy", isDefault: true, jsonData: { timeInterval: interval }, meta };
  const source = new PrometheusDatasource(settings, templates);
  source.meta = meta;
  runtime.setDataSourceSrv({
    get: async () => source,
    getList: ({ pluginId } = {}) => (pluginId && pluginId !== "prometheus" ? [] : [settings]),
    getInstanceSettings: () => settings,
    reload: () => {},
  });
  return config.theme2;
}

// As Grafana's own (public/app/features/templating/template_srv.ts): within a scene the scene interpolates.
function templateService() {
  const scene = (scoped) => scoped?.__sceneObject?.value?.valueOf() ?? window.__grafanaSceneContext;
  return {
    replace: (text, scoped, format) => (scene(scoped) ? sceneGraph.interpolate(scene(scoped), text, scoped, format) : text ?? ""),
    getVariables: () => [],
    getAdhocFilters: () => [],
    containsTemplate: (text) => /\$/.test(text ?? ""),
    updateTimeRange: () => {},
  };
}

// The core of public/app/features/query/state/runRequest.ts, without streaming.
function runRequest(source, request, query) {
  const answer = query ? query(request) : source.query(request);
  return from(answer).pipe(map(({ data: frames, state, error, errors }) => {
    const all = errors ?? (error ? [error] : []);
    const isFrames = frames.every((each) => each.fields);
    const series = isFrames ? frames.map(data.toDataFrame) : frames;
    const annotations = isFrames ? series.filter((each) => each.meta?.dataTopic === data.DataTopic.Annotations) : [];
    return {
      state: all.length ? data.LoadingState.Error : state ?? data.LoadingState.Done, errors: all, error: all[0], request, timeRange: request.range,
      series: series.filter((each) => !annotations.includes(each)), annotations,
    };
  }));
}
