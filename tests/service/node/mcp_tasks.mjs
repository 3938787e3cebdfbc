// Calls the one tool of a served component with the official client of tasks, which answers what the task asks.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";

const [url] = process.argv.slice(2);
const version = "2026-07-28";
const clientInfo = { name: "test", version: "1" };

const client = new Client(clientInfo, { versionNegotiation: { mode: { pin: version } } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();

// The client takes no results that are tasks, so its host sends these requests.
let id = 0;
async function rawDispatch(request, { context, signal } = {}) {
  id += 1;
  const response = await fetch(url, {
    method: "POST",
    signal,
    headers: {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": version,
      "mcp-method": request.method,
      ...(request.params.name === undefined ? {} : { "mcp-name": request.params.name }),
      ...context?.headers,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id, ...request }),
  });
  const { result, error } = await response.json();
  return error === undefined ? { kind: "result", result } : { kind: "error", error };
}

const asked = [];
const statuses = [];
const session = createTaskSessionFromClient(client, {
  endpointId: "test",
  rawDispatch,
  v2RequestFraming: { protocolVersion: version, clientInfo, clientCapabilities: {} },
  onInputRequest: async ({ params }) => {
    asked.push(params.message);
    return { action: "accept", content: { decision: "approve" } };
  },
});
const execution = await session.callTool(tools[0].name, { input: "Hello" });
const { outcome } = await execution.settle({
  onEvent: (event) => {
    if (event.type === "task") statuses.push(event.task.status);
  },
});
console.log(JSON.stringify({ kind: execution.kind, asked, statuses, outcome }));
process.exit(0); // connections that are kept alive would keep it running
