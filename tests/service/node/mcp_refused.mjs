// Calls a tool that is refused, with the official client, in each way in which it negotiates a revision.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url] = process.argv.slice(2);
const printed = {};
for (const mode of ["legacy", "auto"]) {
  const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const error = await client.callTool({ name: "helper", arguments: { input: "Hello" } }).catch((each) => each);
  // a refusal does not end the connection
  const { tools } = await client.listTools();
  printed[mode] = { status: error.status, message: error.message, tools: tools.length };
  await client.close();
}
console.log(JSON.stringify(printed));
process.exit(0); // connections that are kept alive would keep it running
