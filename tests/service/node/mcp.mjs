// Calls the one tool of a served component with the official client of MCP, in each way in which it negotiates a revision.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [base, key] = process.argv.slice(2);
const modes = { legacy: "legacy", auto: "auto", pinned: { pin: "2026-07-28" } };

async function connect(mode, headers) {
  const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${base}/mcp`), { requestInit: { headers } }));
  return client;
}

const printed = {};
for (const [name, mode] of Object.entries(modes)) {
  const client = await connect(mode, { authorization: `Bearer ${key}` });
  const { tools } = await client.listTools();
  const called = await client.callTool({ name: tools[0].name, arguments: { input: "Hello" } });
  const wrong = await client.callTool({ name: tools[0].name, arguments: { input: 1 } });
  printed[name] = { version: client.getNegotiatedProtocolVersion(), tools, called, wrong };
  await client.close();
}
printed.refused = await connect("legacy", {}).then(
  () => "connected",
  (error) => `${error}`,
);
console.log(JSON.stringify(printed));
process.exit(0); // connections that are kept alive would keep it running
