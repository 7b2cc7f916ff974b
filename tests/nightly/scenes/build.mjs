// Bundles the page: `node build.mjs FOLDER_OF_NODE_MODULES OUTPUT`.

import { cpSync, copyFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [packages, output] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const { build } = createRequire(join(packages, "package.json"))("esbuild");

await build({
  entryPoints: [join(here, "src", "main.jsx")],
  outfile: join(output, "bundle.js"),
  bundle: true,
  format: "iife",
  jsx: "automatic",
  nodePaths: [join(packages, "node_modules")],
  define: { "process.env.NODE_ENV": '"production"', "process.env": "{}", global: "window" },
  loader: { ".svg": "dataurl", ".ttf": "dataurl", ".woff": "dataurl", ".woff2": "dataurl", ".png": "dataurl" },
  // The one is Grafana's assistant, for the query editor; the other only passes react-router-dom's names on.
  alias: { "@grafana/assistant": join(here, "src", "absent.js"), "react-router-dom-v5-compat": "react-router-dom" },
  logLevel: "error",
});
copyFileSync(join(here, "index.html"), join(output, "index.html"));
cpSync(join(packages, "node_modules", "@grafana", "ui", "dist", "public"), output, { recursive: true });
