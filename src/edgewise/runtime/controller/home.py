"""`GET /` of the controller: a page for a browser that shows how the system is.

The page itself holds nothing that is private and is served to everyone, as the OpenAPI document is. What it
shows it asks for at `/v1/status` with the operator's token, as any client; the token stays in its memory.
"""

from edgewise.runtime import http

POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HOME = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>edgewise</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 0 0 1.5em } caption { text-align: left; font-weight: 600 }
th, td { text-align: left; padding: .2em 1em .2em 0; border-bottom: 1px solid #8885 }
input { font: inherit; width: 22em; max-width: 100% } #said { min-height: 1.5em }
</style>
<h1>edgewise</h1>
<form id="asking"><label>Operator's token, as <code>edgewise token</code> prints it:
<input id="token" type="password" autocomplete="off" required></label> <button>Show</button></form>
<p id="said" role="status">This page shows nothing without the token, and keeps it only while it is open.</p>
<div id="shown"></div>
<script>
"use strict";
const at = id => document.getElementById(id);
let token = "", timer = 0;
function table(title, headings, rows) {
  const made = document.createElement("table");
  made.createCaption().textContent = title;
  const head = made.insertRow();
  for (const each of headings) {
    const cell = document.createElement("th"); cell.textContent = each; head.append(cell);
  }
  for (const row of rows) {
    const line = made.insertRow();
    for (const each of row) line.insertCell().textContent = each ?? "";
  }
  return made;
}
function show(found) {
  at("shown").replaceChildren(
    table("Processes", ["process", "kind", "state", "restarts"],
      found.processes.map(p => [p.name, p.kind, p.state, p.restarts])),
    table("Nodes", ["node", "state", "cores held", "of"],
      found.nodes.map(n => [n.node, n.up ? "up" : "down", n.held.cpu_cores, n.total.cpu_cores])),
    table("Who decides", ["decision", "policy", "in shadow", "fault"],
      found.policies.map(p => [p.decision, p.policy, p.shadow, p.fault])),
    table("Work", ["kind", "how much"], [["streams open", found.streams_open],
      ...["jobs", "pipelines"].flatMap(kind =>
        Object.entries(found[kind] ?? {}).map(([state, count]) => [`${kind} ${state}`, count]))]));
}
async function look() {
  clearTimeout(timer);
  try {
    const answer = await fetch("/v1/status", {headers: {authorization: `Bearer ${token}`}});
    const found = await answer.json();
    if (!answer.ok) { at("shown").replaceChildren(); at("said").textContent = found.error; return; }
    show(found);
    at("said").textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (error) { at("said").textContent = `the controller does not answer: ${error.message}`; }
  timer = setTimeout(look, 2000);
}
at("asking").addEventListener("submit", event => {
  event.preventDefault(); token = at("token").value.trim(); look();
});
</script></html>
"""


def home() -> http.Response:
    """The page; a browser loads nothing for it from anywhere else, and shows it in no frame."""
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
    return http.Response(200, HOME.encode(), headers)
