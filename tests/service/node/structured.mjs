// Asks for data with two versions of Vercel's AI SDK and a schema of zod, as an object and as the arguments of a tool,
// streamed and whole, and prints what it got as JSON. ARGUMENTS: the URL of the service, an API key.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAI as createOpenAI6 } from "@ai-sdk/openai-3";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import * as ai7 from "ai";
import * as ai6 from "ai-6";
import { z } from "zod";

const [url, apiKey] = process.argv.slice(2);
const baseURL = `${url}/v1`;
const vercel7 = createOpenAI({ baseURL, apiKey });
const vercel6 = createOpenAI6({ baseURL, apiKey });
const options = { name: "podwright", baseURL, apiKey };
const schema = z.object({
  email: z.email(),
  id: z.uuid(),
  day: z.iso.date(),
  at: z.iso.datetime(),
  link: z.url(),
});

async function collect(result) {
  for await (const _ of result.textStream);
  return result;
}

const models = {
  "ai 6, chat": [ai6, vercel6.chat("helper")],
  "ai 6, responses": [ai6, vercel6("helper")],
  "ai 7, chat": [ai7, vercel7.chat("helper")],
  "ai 7, responses": [ai7, vercel7("helper")],
  "ai 7, compatible": [ai7, createOpenAICompatible(options)("helper")],
  "ai 7, compatible, with schemas": [ai7, createOpenAICompatible({ ...options, supportsStructuredOutputs: true })("helper")],
};

const got = {};
for (const [name, [ai, model]] of Object.entries(models)) {
  const request = { model, prompt: "x", maxRetries: 0 };
  const output = ai.Output.object({ schema });
  const tools = { contact: ai.tool({ description: "A contact.", inputSchema: schema }) };
  const named = { type: "tool", toolName: "contact" };
  const object = await ai.generateText({ ...request, output });
  const streamed = await collect(ai.streamText({ ...request, output }));
  const called = await ai.generateText({ ...request, tools, toolChoice: named });
  const required = await collect(ai.streamText({ ...request, tools, toolChoice: "required" }));
  got[name] = [
    object.output,
    await streamed.output,
    called.toolCalls[0].input,
    (await required.toolCalls)[0].input,
    (await ai.generateObject({ ...request, schema })).object,
  ];
}
console.log(JSON.stringify(got));
