// Panels. Their code is part of Grafana's core and in no package; the components that they draw with are. Each panel
// here hands its data to that component as Grafana's own panel does. State timeline and heat map have no component in
// a package: both are substitutes, drawn by us, and say so.

import {
  FieldType, PanelPlugin, VizOrientation, cacheFieldDisplayNames, getDisplayValueAlignmentFactors, getFieldDisplayValues,
} from "@grafana/data";
import { config } from "@grafana/runtime";
import {
  BarGauge, BigValue, BigValueGraphMode, BigValueTextMode, DataLinksContextMenu, TimeSeries, VizRepeater, commonOptionsBuilder,
} from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";

import { Heatmap, StateTimeline } from "./substitutes.jsx";

export const DRAWN_BY = {
  timeseries: "@grafana/ui TimeSeries", stat: "@grafana/ui BigValue", bargauge: "@grafana/ui BarGauge", table: "@grafana/ui TableNG",
  "state-timeline": "a substitute of ours", heatmap: "a substitute of ours",
};

function NoData({ fieldConfig }) {
  return <div className="no-data">{fieldConfig.defaults.noValue || "No data"}</div>;
}

const hasRows = (series) => series.some((frame) => frame.length && frame.fields.some((field) => field.type !== FieldType.time));

// Options of a field which a panel adds to the standard ones; a path that is not here is unknown to Grafana's panel.
const GRAPH = [
  "drawStyle", "lineInterpolation", "barAlignment", "barWidthFactor", "barMaxWidth", "lineWidth", "fillOpacity", "gradientMode", "fillBelowTo", "lineStyle",
  "spanNulls", "insertNulls", "showPoints", "pointSize", "thresholdsStyle", "transform", "showValues",
];
const CELLS = ["width", "minWidth", "align", "cellOptions", "inspect", "filterable", "hidden", "hideFrom.viz", "footer", "wrapText", "wrapHeaderText", "tooltip"];

function options(builder, paths, defaults = {}) {
  for (const path of paths) {
    builder.addCustomEditor({
      id: path, path, name: path, editor: () => null, override: () => null, process: (value) => value, shouldApply: () => true, defaultValue: defaults[path],
    });
  }
}

function plugin(id, panel, useCustomConfig) {
  const made = new PanelPlugin(panel);
  made.meta = { id, name: id, type: "panel", info: { version: config.buildInfo?.version ?? "" }, sort: 0 };
  made.useFieldConfig({ useCustomConfig });
  return made;
}

function Graph({ data, timeRange, timeZone, width, height, options: { legend }, fieldConfig, replaceVariables }) {
  const frames = data.series
    .filter((frame) => frame.fields.some((field) => field.type === FieldType.time) && frame.fields.some((field) => field.type === FieldType.number))
    .map((frame) => ({ ...frame, fields: frame.fields.filter((field) => [FieldType.time, FieldType.number].includes(field.type)) }));
  if (!hasRows(frames)) return <NoData fieldConfig={fieldConfig} />;
  return (
    <TimeSeries frames={frames} structureRev={data.structureRev} timeRange={timeRange} timeZone={timeZone} width={width} height={height}
      legend={legend} options={{}} replaceVariables={replaceVariables}>
      {() => null}
    </TimeSeries>
  );
}

function values({ data, options: chosen, replaceVariables, fieldConfig, timeZone }) {
  return getFieldDisplayValues({
    fieldConfig, reduceOptions: chosen.reduceOptions, replaceVariables, theme: config.theme2, data: data.series,
    sparkline: chosen.graphMode !== undefined && chosen.graphMode !== BigValueGraphMode.None, timeZone,
  });
}

function linked({ value, hasLinks, getLinks }, draw) {
  if (!hasLinks || !getLinks) return draw({});
  return <DataLinksContextMenu links={getLinks}>{(api) => draw({ onClick: api.openMenu, className: api.targetClassName, hasLinks: true })}</DataLinksContextMenu>;
}

function Stat(props) {
  const { width, height, data, options: chosen, fieldConfig, title, renderCounter } = props;
  const named = chosen.textMode === BigValueTextMode.Auto && (fieldConfig.defaults.displayName || !title);
  const draw = ({ value, alignmentFactors, width: own, height: tall, count }) => linked(value, (api) => (
    <BigValue value={value.display} count={count} sparkline={value.sparkline} colorMode={chosen.colorMode} graphMode={chosen.graphMode}
      justifyMode={chosen.justifyMode} textMode={named ? BigValueTextMode.ValueAndName : chosen.textMode} alignmentFactors={alignmentFactors}
      text={chosen.text} width={own} height={tall} theme={config.theme2} wideLayout={chosen.wideLayout} {...api} />
  ));
  return (
    <VizRepeater getValues={() => values(props)} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={draw} width={width} height={height}
      source={data} itemSpacing={3} renderCounter={renderCounter} autoGrid orientation={chosen.orientation ?? VizOrientation.Auto} />
  );
}

function Bars(props) {
  const { width, height, data, options: chosen, renderCounter } = props;
  const draw = ({ value, alignmentFactors, orientation, width: own, height: tall, count }) => linked(value, (api) => (
    <BarGauge value={value.display} width={own} height={tall} orientation={orientation} field={value.field} text={chosen.text} display={value.view?.getFieldDisplayProcessor(value.colIndex)}
      theme={config.theme2} itemSpacing={10} displayMode={chosen.displayMode} showUnfilled={chosen.showUnfilled} valueDisplayMode={chosen.valueMode}
      alignmentFactors={count > 1 ? alignmentFactors : undefined} {...api} />
  ));
  return (
    <VizRepeater getValues={() => values(props)} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={draw} width={width} height={height}
      source={data} itemSpacing={10} renderCounter={renderCounter} orientation={chosen.orientation} minVizHeight={16} minVizWidth={8} />
  );
}

function Table({ data, width, height, options: chosen, fieldConfig, timeRange }) {
  cacheFieldDisplayNames(data.series); // as Grafana's own panel does before TableNG reads the names
  const frame = data.series[chosen.frameIndex ?? 0] ?? data.series[0];
  if (!frame?.fields.length) return <NoData fieldConfig={fieldConfig} />;
  return (
    <TableNG data={frame} width={width} height={height} noHeader={!chosen.showHeader} showTypeIcons={chosen.showTypeIcons} resizable sortBy={chosen.sortBy}
      cellHeight={chosen.cellHeight} fieldConfig={fieldConfig} timeRange={timeRange} structureRev={data.structureRev} noValue={fieldConfig.defaults.noValue}
      getActions={() => []} enableVirtualization={false} />
  );
}

export const plugins = {
  timeseries: plugin("timeseries", Graph, (builder) => {
    options(builder, GRAPH, { drawStyle: "line", lineWidth: 1, fillOpacity: 0, showPoints: "auto", lineInterpolation: "linear", pointSize: 5 });
    commonOptionsBuilder.addStackingConfig(builder, { mode: "none", group: "A" });
    commonOptionsBuilder.addAxisConfig(builder, {});
    commonOptionsBuilder.addHideFrom(builder);
  }),
  stat: plugin("stat", Stat),
  bargauge: plugin("bargauge", Bars),
  table: plugin("table", Table, (builder) => options(builder, CELLS, { cellOptions: { type: "auto" }, align: "auto" })),
  "state-timeline": plugin("state-timeline", StateTimeline, (builder) => {
    options(builder, ["lineWidth", "fillOpacity", "spanNulls", "insertNulls"], { fillOpacity: 70 });
    commonOptionsBuilder.addHideFrom(builder);
    commonOptionsBuilder.addAxisConfig(builder, {});
  }),
  heatmap: plugin("heatmap", Heatmap, (builder) => {
    options(builder, ["scaleDistribution"]);
    commonOptionsBuilder.addHideFrom(builder);
  }),
};
