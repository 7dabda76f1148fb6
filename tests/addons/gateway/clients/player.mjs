// Programs of the tests of surreal_client.js; player.cpp has the same with the same output.
import { createInterface } from "node:readline";
import * as client from "../../../../surreal_like/addons/gateway/clients/surreal_client.js";
import { CartPole } from "../../../../surreal_like/addons/gateway/clients/cartpole.js";

const { connect, pack, unpack, shaped } = client;
const [name, ...given] = process.argv.slice(2);
const say = (...words) => console.log(words.join(" "));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const line = async () => (await lines.next()).value;
const hex = (data) => Buffer.from(data).toString("hex");

async function episode(session, steps, end = {}, reward = 1) {
  await session.reset([0, 0]);
  for (let step = 1; step < steps; step++) {
    await session.step(reward, new Float32Array([0, step]));
  }
  const { total, length } = await session.end(reward, end);
  say("episode", total, length);
}

function shown(value) {
  if (ArrayBuffer.isView(value)) {
    const data = Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64");
    return { dtype: value.dtype, shape: value.shape, data };
  }
  if (Array.isArray(value)) return value.map(shown);
  if (typeof value === "bigint") return { integer: String(value) };
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, shown(each)]));
}

const programs = {
  // Each line is a payload in hex: what it is, and the same packed again.
  async decode() {
    for (let text = await line(); text !== undefined; text = await line()) {
      try {
        const value = unpack(new Uint8Array(Buffer.from(text, "hex")));
        say(hex(pack(value)), JSON.stringify(shown(value)));
      } catch (error) {
        if (!(error instanceof client.ClientError)) throw error;
        say("error", JSON.stringify(error.message));
      }
    }
  },
  async ends(address) {
    const session = await connect(address, { name: "robot" });
    say(session.observationSpec.type, session.observationSpec.dim, session.actionSpec.type);
    await episode(session, 3);
    await episode(session, 2, { observation: [0, 9], truncated: true });
    await episode(session, 1, { observation: [0, 9], metrics: { speed: 2.5 } });
    session.metrics({ speed: 2.5 });
    await session.close();
  },
  async many(address, episodes, steps) {
    const session = await connect(address);
    for (let index = 0; index < Number(episodes); index++) await episode(session, Number(steps));
    await session.close();
  },
  // Waits for a line before the end of the first episode.
  async interrupted(address) {
    const session = await connect(address);
    await session.reset([0, 0]);
    await session.step(2, [0, 1]);
    say("waiting");
    await line();
    const { total, length } = await session.end(3);
    say("episode", total, length);
    await episode(session, 2);
    await session.close();
  },
  // Waits for a line in the middle of an episode.
  async halfway(address) {
    const session = await connect(address);
    await session.reset([0, 0]);
    await session.step(1, [0, 1]);
    say("waiting");
    await line();
    for (let step = 2; step < 5; step++) await session.step(1, [0, step]);
    const { total, length } = await session.end(1);
    say("episode", total, length);
    await session.close();
  },
  async loop(address) {
    const session = await connect(address);
    say("played", await session.episodes(() => episode(session, 3)));
  },
  // Words are pairs of an option and its value.
  async refused(address, ...words) {
    const options = { patienceSeconds: 0.1 };
    for (let at = 0; at < words.length; at += 2) options[words[at]] = words[at + 1];
    if (options.numEnvs) options.numEnvs = Number(options.numEnvs);
    try {
      await connect(address, options);
      say("welcome");
    } catch (error) {
      if (!(error instanceof client.ClientError)) throw error;
      say(error.constructor.name, error.code ?? "", error.message);
    }
  },
  async corrected(address) {
    const session = await connect(address);
    for (const wrong of [[0], [0, NaN]]) {
      await session.reset(wrong).catch((error) => say(error.code));
    }
    await session.reset([0, 0]);
    const { total, length } = await session.end(1);
    say("episode", total, length);
    await session.close();
  },
  async latency(address) {
    const session = await connect(address);
    for (let index = 0; index < 20; index++) await episode(session, 4);
    await session.close();
  },
  // Plays until an error comes, and shows it.
  async endure(address, times) {
    for (let index = 0; index < Number(times); index++) {
      try {
        const session = await connect(address, { patienceSeconds: 0.2 });
        for (;;) await episode(session, 3);
      } catch (error) {
        if (!(error instanceof client.ClientError)) throw error;
        say(JSON.stringify(error.message));
      }
    }
  },
  // The words are a state and actions; a line for each state that follows.
  async cartpole(state, actions) {
    const pole = new CartPole(state.split(",").map(Number));
    for (const action of actions) {
      const { terminated, truncated } = pole.step(Number(action));
      say(...pole.state, Number(terminated), Number(truncated));
    }
  },
};

await programs[name](...given);
process.stdin.destroy();
