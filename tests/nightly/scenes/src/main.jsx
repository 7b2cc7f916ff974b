// Draws one dashboard with Grafana's components and says what each panel shows: `window.report()`.

import { ThemeContext } from "@grafana/data";
import { GlobalStyles, PortalContainer } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import { MemoryRouter } from "react-router-dom";

import { sceneOf } from "./dashboard.js";
import { prepare } from "./environment.js";
import { reportOf } from "./report.js";

window.thrown = [];
// Chromium postpones the rest of a resize to the next frame on a busy machine, and says so as an error; nothing threw.
const POSTPONED = "ResizeObserver loop completed with undelivered notifications.";
addEventListener("error", ({ message }) => message !== POSTPONED && window.thrown.push(message));
addEventListener("unhandledrejection", ({ reason }) => window.thrown.push(String(reason?.stack ?? reason)));
const complain = console.error;
console.error = (...words) => {
  window.thrown.push(words.map(String).join(" ").slice(0, 600));
  complain(...words);
};

window.draw = async (model, settings) => {
  const theme = await prepare(settings);
  const { scene, drawn, rows } = sceneOf(model, settings);
  window.__grafanaSceneContext = scene;
  document.body.style.background = theme.colors.background.canvas;
  scene.activate();
  createRoot(document.getElementById("root")).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <MemoryRouter>
        <div style={{ width: settings.width, height: rows * 38, padding: 8 }}>
          <scene.Component model={scene} />
        </div>
      </MemoryRouter>
      <PortalContainer />
    </ThemeContext.Provider>,
  );
  window.report = () => reportOf(scene, drawn);
};
