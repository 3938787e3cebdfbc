// Holds two turns, the first with a tool of the component, with each client, streamed and whole, and prints what it got
// as JSON. ARGUMENTS: the URL of the service, an API key.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const [url, apiKey] = process.argv.slice(2);
const baseURL = `${url}/v1`;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const vercel = createOpenAI({ baseURL, apiKey });
const compatible = createOpenAICompatible({ name: "podwright", baseURL, apiKey, includeUsage: true });
const store = { providerOptions: { openai: { store: false } } };
const user = (content) => ({ role: "user", content });

async function twoTurns(ask) {
  const messages = [user("search")];
  const first = await ask(messages);
  messages.push(...first.messages, user("And now?"));
  const second = await ask(messages);
  return [first, second].map(({ text, reasoning, tokens }) => ({ text, reasoning, tokens }));
}

async function nodeChat(messages) {
  const options = { stream: true, stream_options: { include_usage: true } };
  const message = { role: "assistant", content: "", reasoning_content: "" };
  let tokens;
  for await (const chunk of await client.chat.completions.create({ model: "helper", messages, ...options })) {
    const { content, reasoning_content: reasoning } = chunk.choices[0]?.delta ?? {};
    message.content += content ?? "";
    message.reasoning_content += reasoning ?? "";
    tokens = chunk.usage?.total_tokens;
  }
  return { messages: [message], text: message.content, reasoning: message.reasoning_content, tokens };
}

async function nodeResponses(input) {
  const response = await client.responses.stream({ model: "helper", input, store: false }).finalResponse();
  const summaries = response.output.flatMap((item) => item.summary ?? []);
  return {
    messages: response.output,
    text: response.output_text,
    reasoning: summaries.map((part) => part.text).join("\n\n"),
    tokens: response.usage.total_tokens,
  };
}

const whole = (model, options) => async (messages) => {
  const result = await generateText({ model, messages, maxRetries: 0, ...options });
  return {
    messages: result.response.messages,
    text: result.text,
    reasoning: result.reasoningText,
    tokens: result.usage.totalTokens,
  };
};

const streamed = (model, options) => async (messages) => {
  const result = streamText({ model, messages, maxRetries: 0, onError: () => {}, ...options });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  return {
    messages: (await result.response).messages,
    text,
    reasoning: await result.reasoningText,
    tokens: (await result.usage).totalTokens,
  };
};

const clients = {
  "openai, chat": nodeChat,
  "openai, responses": nodeResponses,
  "ai, chat": whole(vercel.chat("helper")),
  "ai, chat, streamed": streamed(vercel.chat("helper")),
  "ai, responses": whole(vercel("helper"), store),
  "ai, responses, streamed": streamed(vercel("helper"), store),
  "ai, compatible": whole(compatible("helper")),
  "ai, compatible, streamed": streamed(compatible("helper")),
};

const got = {};
for (const [name, ask] of Object.entries(clients)) got[name] = await twoTurns(ask);
const stored = await twoTurns(whole(vercel("helper"))).catch((error) => error);
got.stored = [stored.statusCode, JSON.parse(stored.responseBody ?? "{}").error?.message];
console.log(JSON.stringify(got));
