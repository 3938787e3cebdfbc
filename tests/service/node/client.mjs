// Talks to the service at the URL of the first argument with OpenAI's client for Node, and prints what it got as JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: process.argv[3], maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Hello" }];

const chat = await client.chat.completions.create({ model, messages });

let streamed = "";
let usage;
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create({ model, messages, ...options })) {
  streamed += chunk.choices[0]?.delta.content ?? "";
  usage = chunk.usage ?? usage;
}

const response = await client.responses.create({ model, input: "Hello" });

const events = [];
for await (const event of await client.responses.create({ model, input: "Hello", stream: true })) {
  events.push(event.type);
}

const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const format = { type: "json_schema", json_schema: { name: "city", schema } };
const structured = await client.chat.completions.create({ model, messages, response_format: format });

const refused = await client.chat.completions.create({ model, messages, n: 2 }).catch((error) => error);

console.log(
  JSON.stringify({
    chat: chat.choices[0].message.content,
    tokens: chat.usage.total_tokens,
    streamed,
    streamedTokens: usage.total_tokens,
    response: response.output_text,
    responseTokens: response.usage.total_tokens,
    events,
    structured: JSON.parse(structured.choices[0].message.content),
    refused: [refused.constructor.name, refused.status, refused.code, refused.param],
  }),
);
