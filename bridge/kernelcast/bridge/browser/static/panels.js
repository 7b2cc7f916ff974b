// Panel types that these pages draw.

import { heatmap, stateTimeline } from "./panel_grid.js";
import { timeseries } from "./panel_series.js";
import { barGauge, gauge, stat } from "./panel_stat.js";
import { alerts, table, text } from "./panel_table.js";

export const PANELS = {
  stat, gauge, bargauge: barGauge, timeseries, table, heatmap, "state-timeline": stateTimeline, "status-history": stateTimeline, text, alertlist: alerts,
};

export const isDrawn = (panel) => Object.hasOwn(PANELS, panel.type);
