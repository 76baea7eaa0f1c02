// Who is connected: client libraries by their own name and version.

import { el, table } from "./dom.js";
import { whose } from "./replicas.js";
import { count, number } from "./words.js";

export const label = "Clients";
export const title = () => "Clients";
export const asks = () => ({ clients: "/api/v1/clients" });

export function body({ clients: { clients } }) {
  if (!clients.length) return el("p", { class: "empty" }, "No client has connected since the start.");
  const open = clients.reduce((sum, client) => sum + client.connections, 0);
  const rows = clients.map((client) => ({
    key: `${client.software}/${client.version}`,
    cells: [
      [el("span", { class: "name" }, software(client.software)), client.version ? el("span", { class: "version" }, ` ${client.version}`) : null, whose(client)],
      number(client.connections),
      number(client.connections_total),
      client.client_ids.length
        ? el("ul", { class: "ids" }, client.client_ids.map((id) => el("li", {}, el("bdi", {}, id))), client.more_client_ids ? el("li", { class: "quiet" }, "and more") : null)
        : el("span", { class: "quiet" }, "none given"),
    ],
  }));
  return [
    el("p", { role: "status", class: "quiet" }, `${count(open, "open connection")}, ${count(clients.length, "client library", "client libraries")} since the start`),
    table("Clients by client library and version",
      ["Client library", { label: "Open now", kind: "num" }, { label: "Since the start", kind: "num" }, { label: "Client ids", kind: "grow" }], rows),
  ];
}

const software = (name) => ({ unknown: "does not say (before KIP-511)", _other: "all others" })[name] ?? name;
