// Preloaded into servers that would listen on all interfaces at a fixed port: they listen on 127.0.0.1, at a port that
// the system chooses unless LOOPBACK_PORT has one, and print the address.
const { Server } = require("node:net");

const { listen } = Server.prototype;

Server.prototype.listen = function (...args) {
  const callback = args.findLast((value) => typeof value === "function");
  this.once("listening", () => console.error(`listening on http://127.0.0.1:${this.address().port}`));
  return listen.call(this, { host: "127.0.0.1", port: Number(process.env.LOOPBACK_PORT ?? 0) }, callback);
};
