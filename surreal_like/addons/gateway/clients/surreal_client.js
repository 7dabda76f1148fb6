/**
 * Client of a surreal_like gateway: an environment in a browser or in Node drives an agent.
 *
 * This file may be copied; it is an ES module and needs nothing else: a browser, or Node 20 or
 * newer (before 20.19 in a folder with a package.json that says "type": "module").
 * The protocol is in docs/gateway.md.
 *
 *     import { connect } from "./surreal_client.js";
 *
 *     const session = await connect("127.0.0.1:7100");
 *     await session.episodes(async (seed) => {
 *       let action = await session.reset(game.begin(seed));
 *       for (;;) {
 *         const { reward, observation, over } = game.step(action);
 *         if (over) return session.end(reward, { observation });
 *         action = await session.step(reward, observation);
 *       }
 *     });
 */

export const PROTOCOL = 1;
const CLIENT = `surreal_client.js ${PROTOCOL}`;
const FIRST_DELAY = 0.5;
const LAST_DELAY = 10;
// The gateway sends a sign of life every 5 s while it owes an answer.
const SILENT_SECONDS = 20;
const CONNECT_SECONDS = 5;
const UNKNOWN =
  "no authority vouches for the certificate of this server; if it is your own, give fingerprint, " +
  "as surreal-like clients RUN --certificate HOST has printed it";
const REPORT_STEPS = 100;
const LARGEST_BYTES = 64 << 20;
const DEEPEST = 16;

/** Base of the errors of this client. */
export class ClientError extends Error {}

/** The run is over, or this session has ended for good; the message is the reason. */
export class Finished extends ClientError {}

/** The gateway could not be reached, or did not answer, for `patienceSeconds`. */
export class Unavailable extends ClientError {}

/** The address is not host:port, tls://host:port, or in browsers ws:// or wss://. */
export class InvalidAddress extends ClientError {}

/** The gateway refuses a message; `code` is from the table of errors in the protocol. */
export class Refused extends ClientError {
  constructor(code, message) {
    super(`${code}: ${message}`);
    this.code = code;
  }
}

/** The connection is gone. */
class Lost extends Error {}

// -- msgpack

const DTYPES = {
  1: ["float32", Float32Array],
  2: ["uint8", Uint8Array],
  3: ["int8", Int8Array],
  4: ["int16", Int16Array],
  5: ["int32", Int32Array],
  6: ["int64", BigInt64Array],
  7: ["uint16", Uint16Array],
  8: ["uint32", Uint32Array],
  9: ["bool", Uint8Array],
  10: ["float64", Float64Array],
};

/**
 * Gives a typed array a shape, and returns it; without one it has a single axis.
 *
 * dtype: "bool" for a Uint8Array of truth values, "bytes" for one that is no array.
 */
export function shaped(data, shape, dtype) {
  return Object.assign(data, { shape }, dtype ? { dtype } : {});
}

class Writer {
  bytes = new Uint8Array(256);
  view = new DataView(this.bytes.buffer);
  size = 0;

  room(count) {
    const at = this.size;
    this.size += count;
    if (this.size > this.bytes.length) {
      const grown = new Uint8Array(2 * this.size);
      grown.set(this.bytes.subarray(0, at));
      this.bytes = grown;
      this.view = new DataView(grown.buffer);
    }
    return at;
  }

  byte(value) {
    const at = this.room(1);
    this.bytes[at] = value;
  }

  add(data) {
    const at = this.room(data.length);
    this.bytes.set(data, at);
  }

  /** Writes the head of a value of a variable size. */
  head(size, fix, most, [one, two, four]) {
    if (size <= most) {
      this.byte(fix | size);
    } else if (one && size < 0x100) {
      this.byte(one);
      this.byte(size);
    } else if (size < 0x10000) {
      this.byte(two);
      const at = this.room(2);
      this.view.setUint16(at, size);
    } else {
      this.byte(four);
      const at = this.room(4);
      this.view.setUint32(at, size);
    }
  }

  number(value) {
    if (!Number.isSafeInteger(value) || Object.is(value, -0)) {
      this.byte(0xcb);
      const at = this.room(8);
      this.view.setFloat64(at, value);
    } else if (value >= -32 && value < 128) {
      this.byte(value & 0xff);
    } else {
      this.integer(BigInt(value));
    }
  }

  integer(value) {
    this.byte(value < 0n ? 0xd3 : 0xcf);
    const at = this.room(8);
    this.view.setBigUint64(at, BigInt.asUintN(64, value));
  }

  array(data) {
    const shape = data.shape ?? [data.length];
    const name = data.dtype ?? Object.values(DTYPES).find((each) => data instanceof each[1])?.[0];
    const raw = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    if (name === "bytes") {
      this.head(raw.length, 0, -1, [0xc4, 0xc5, 0xc6]);
      this.add(raw);
      return;
    }
    const code = Object.keys(DTYPES).find((each) => DTYPES[each][0] === name);
    if (!code) throw new TypeError(`a ${data.constructor.name} cannot be sent`);
    if (shape.reduce((a, b) => a * b, 1) !== data.length) {
      throw new TypeError(`an array of ${data.length} numbers has not the shape [${shape}]`);
    }
    this.head(2 + 4 * shape.length + raw.length, 0, -1, [0xc7, 0xc8, 0xc9]);
    this.add([1, Number(code), shape.length]);
    for (const axis of shape) {
      const at = this.room(4);
      this.view.setUint32(at, axis, true);
    }
    this.add(raw);
  }

  value(value) {
    if (value === null || value === undefined) this.byte(0xc0);
    else if (typeof value === "boolean") this.byte(value ? 0xc3 : 0xc2);
    else if (typeof value === "number") this.number(value);
    else if (typeof value === "bigint") this.integer(value);
    else if (typeof value === "string") {
      const text = new TextEncoder().encode(value);
      this.head(text.length, 0xa0, 31, [0xd9, 0xda, 0xdb]);
      this.add(text);
    } else if (Array.isArray(value)) {
      this.head(value.length, 0x90, 15, [0, 0xdc, 0xdd]);
      for (const each of value) this.value(each);
    } else if (ArrayBuffer.isView(value)) this.array(value);
    else if (typeof value === "object") {
      const entries = Object.entries(value).filter((entry) => entry[1] !== undefined);
      this.head(entries.length, 0x80, 15, [0, 0xde, 0xdf]);
      for (const [key, each] of entries) {
        this.value(key);
        this.value(each);
      }
    } else throw new TypeError(`a ${typeof value} cannot be sent: give numbers, lists or arrays`);
  }
}

/** Returns a value in msgpack (a Uint8Array): null, booleans, numbers, texts, arrays, objects. */
export function pack(value) {
  const writer = new Writer();
  writer.value(value);
  return writer.bytes.subarray(0, writer.size);
}

class Reader {
  constructor(data) {
    this.data = data;
    this.view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    this.at = 0;
  }

  take(count) {
    if (count > this.data.length - this.at) throw new ClientError("the payload is cut off");
    this.at += count;
    return this.at - count;
  }

  size(width) {
    const at = this.take(width);
    if (width === 1) return this.view.getUint8(at);
    return width === 2 ? this.view.getUint16(at) : this.view.getUint32(at);
  }

  text(size) {
    const at = this.take(size);
    const raw = this.data.subarray(at, at + size);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    } catch {
      throw new ClientError("a text that is not UTF-8");
    }
  }

  bytes(size) {
    const at = this.take(size);
    return shaped(this.data.slice(at, at + size), [size], "bytes");
  }

  array(size) {
    const start = this.take(size + 1);
    const end = start + 1 + size;
    const [dtype, kind] = DTYPES[this.data[start + 1]] ?? [];
    const axes = this.data[start + 2];
    const first = start + 3 + 4 * axes;
    if (this.data[start] !== 1 || size < 2 || !dtype || first > end) {
      throw new ClientError("an extension that is no array");
    }
    const shape = [];
    for (let axis = 0; axis < axes; axis++) {
      shape.push(this.view.getUint32(start + 3 + 4 * axis, true));
    }
    const length = shape.reduce((a, b) => a * b, 1);
    if (length * kind.BYTES_PER_ELEMENT !== end - first) {
      throw new ClientError("an array with too many or too few bytes");
    }
    // A copy: typed arrays begin at multiples of their width.
    return shaped(new kind(this.data.slice(first, end).buffer), shape, dtype);
  }

  list(size, depth) {
    const found = [];
    for (let index = 0; index < size; index++) found.push(this.value(depth + 1));
    return found;
  }

  map(size, depth) {
    const found = Object.create(null);
    for (let index = 0; index < size; index++) {
      const key = this.value(depth + 1);
      if (typeof key !== "string") throw new ClientError("a key that is no text");
      found[key] = this.value(depth + 1);
    }
    return found;
  }

  value(depth) {
    if (depth > DEEPEST) throw new ClientError("values are nested too deeply");
    const code = this.data[this.take(1)];
    if (code < 0x80) return code;
    if (code >= 0xe0) return code - 256;
    if (code < 0x90) return this.map(code & 15, depth);
    if (code < 0xa0) return this.list(code & 15, depth);
    if (code < 0xc0) return this.text(code & 31);
    const number = this.number(code);
    if (number !== undefined) return number;
    const width = 1 << ((code - (code < 0xd9 ? 0xc4 : 0xd9)) % 3);
    if (code >= 0xc4 && code <= 0xc6) return this.bytes(this.size(width));
    if (code >= 0xc7 && code <= 0xc9) return this.array(this.size(width));
    if (code >= 0xd4 && code <= 0xd8) return this.array(1 << (code - 0xd4));
    if (code >= 0xd9 && code <= 0xdb) return this.text(this.size(width));
    if (code === 0xdc || code === 0xdd) return this.list(this.size(code === 0xdc ? 2 : 4), depth);
    if (code === 0xde || code === 0xdf) return this.map(this.size(code === 0xde ? 2 : 4), depth);
    if (code === 0xc0) return null;
    if (code === 0xc2 || code === 0xc3) return code === 0xc3;
    throw new ClientError(`the byte 0x${code.toString(16)} begins no value`);
  }

  number(code) {
    const { view } = this;
    switch (code) {
      case 0xca: return view.getFloat32(this.take(4));
      case 0xcb: return view.getFloat64(this.take(8));
      case 0xcc: return view.getUint8(this.take(1));
      case 0xcd: return view.getUint16(this.take(2));
      case 0xce: return view.getUint32(this.take(4));
      case 0xcf: return plain(view.getBigUint64(this.take(8)));
      case 0xd0: return view.getInt8(this.take(1));
      case 0xd1: return view.getInt16(this.take(2));
      case 0xd2: return view.getInt32(this.take(4));
      case 0xd3: return plain(view.getBigInt64(this.take(8)));
    }
    return undefined;
  }
}

/** Returns a whole number as a number if that has all its digits. */
function plain(value) {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/**
 * Returns the value in a msgpack payload; arrays are typed arrays with `shape` and `dtype`.
 *
 * Throws ClientError: it is not valid, or there is more than one value.
 */
export function unpack(data) {
  const reader = new Reader(data);
  const value = reader.value(0);
  if (reader.at !== data.length) throw new ClientError("bytes after the end of the value");
  return value;
}

// -- the connection

/** Messages of one connection; a transport gives it payloads, and how to send and close. */
class Connection {
  messages = [];
  lost = null;

  /** Adds a received payload. */
  feed(payload) {
    try {
      const fields = unpack(payload);
      if (typeof fields?.kind !== "string") throw new ClientError("it has no kind");
      this.messages.push(fields);
    } catch (error) {
      if (!(error instanceof ClientError)) throw error;
      this.fail(new Refused("malformed", `the gateway has sent no message: ${error.message}`));
    }
    this.wake?.();
  }

  fail(error) {
    this.lost ??= error;
    this.wake?.();
  }

  /** Waits for the next message; throws Lost if none comes. */
  async receive(seconds) {
    if (!this.messages.length && !this.lost) {
      let timer;
      await new Promise((resolve) => {
        this.wake = resolve;
        timer = setTimeout(resolve, 1000 * seconds);
      });
      clearTimeout(timer);
    }
    if (this.messages.length) return this.messages.shift();
    throw this.lost ?? new Lost("no answer");
  }

  send(fields) {
    // What the gateway has sent before it closed is read first.
    if (!this.lost) this.transmit(pack(fields));
  }
}

/** Opens a connection; throws Lost, or Refused for a wrong certificate. */
async function open(where, fingerprint) {
  const connection = new Connection();
  let timer;
  try {
    await new Promise((resolve, reject) => {
      timer = setTimeout(() => reject(new Lost("no connection in time")), 1000 * CONNECT_SECONDS);
      connection.wake = () => connection.lost && reject(connection.lost);
      const begin = where.url ? openWebSocket : openSocket;
      begin(connection, where, fingerprint, resolve).catch(reject);
    });
  } catch (error) {
    connection.close?.();
    throw error;
  } finally {
    clearTimeout(timer);
  }
  return connection;
}

async function openWebSocket(connection, where, fingerprint, ready) {
  const socket = new WebSocket(where.url, "surreal.v1.msgpack");
  socket.binaryType = "arraybuffer";
  socket.onopen = ready;
  socket.onmessage = (event) => connection.feed(new Uint8Array(event.data));
  socket.onclose = () => connection.fail(new Lost(`${where.url} has closed the connection`));
  connection.transmit = (payload) => socket.send(payload);
  connection.close = () => socket.close();
}

/** Opens binary frames on TCP or TLS, in Node. */
async function openSocket(connection, where, fingerprint, ready) {
  const { host, port } = where;
  const { connect: dial } = await import(where.tls ? "node:tls" : "node:net");
  // Names of machines stand in certificates, addresses do not.
  const name = /^[\d.]+$|:/.test(host) ? {} : { servername: host };
  // A pinned certificate itself is compared.
  const options = where.tls ? { rejectUnauthorized: !fingerprint, ...name } : {};
  const socket = dial({ host, port, ...options });
  socket.setNoDelay(true);
  let held = [];
  let size = 0;
  connection.transmit = (payload) => {
    const head = new DataView(new ArrayBuffer(4));
    head.setUint32(0, payload.length, true);
    socket.write(Buffer.concat([new Uint8Array(head.buffer), payload]));
  };
  connection.close = () => socket.destroy();
  socket.on(where.tls ? "secureConnect" : "connect", () => {
    const shown = where.tls && socket.getPeerCertificate().fingerprint256.replaceAll(":", "");
    if (fingerprint && shown !== fingerprint.replaceAll(":", "").toUpperCase()) {
      const text = `the server has the fingerprint ${String(shown).toLowerCase()}`;
      connection.fail(new Refused("fingerprint", text));
    } else ready();
  });
  socket.on("data", (part) => {
    held.push(part);
    size += part.length;
    while (size >= 4) {
      if (held[0].length < 4) held = [Buffer.concat(held)];
      const length = held[0].readUInt32LE(0);
      if (length > LARGEST_BYTES) {
        connection.fail(new Refused("malformed", `the gateway announces ${length} bytes`));
        socket.destroy();
        return;
      }
      if (size < 4 + length) return;
      const all = held.length === 1 ? held[0] : Buffer.concat(held);
      connection.feed(new Uint8Array(all.buffer, all.byteOffset + 4, length));
      held = [all.subarray(4 + length)];
      size -= 4 + length;
    }
  });
  socket.on("error", (error) => {
    // To try again would not help.
    const unknown = /CERT|SIGNATURE/.test(error.code ?? "");
    const text = `${error.message}: ${UNKNOWN}`;
    connection.fail(unknown ? new Refused("certificate", text) : new Lost(error.message || error.code));
  });
  socket.on("close", () => connection.fail(new Lost("the gateway has closed the connection")));
}

/** Returns where an address leads to. */
function parse(address) {
  const found = /^(?:(tls|wss?):\/\/)?(\[[^\]]+\]|[^\s/:]+):(\d{1,5})(\/\S*)?$/.exec(address);
  const [, scheme, host, port, path] = found ?? [];
  const known = Number(port) > 0 && Number(port) < 65536;
  if (!found || !known || (path && !scheme?.startsWith("ws"))) {
    const expected = "expected host:port or tls://host:port, and a port from 1 to 65535";
    throw new InvalidAddress(`the address is ${address}, ${expected}`);
  }
  const secure = scheme === "tls" || scheme === "wss";
  const inNode = globalThis.process?.versions?.node !== undefined;
  if (!inNode || scheme?.startsWith("ws")) {
    return { url: `${secure ? "wss" : "ws"}://${host}:${port}${path ?? "/v1"}` };
  }
  return { host: host.replace(/[[\]]/g, ""), port: Number(port), tls: secure };
}

/** Returns a field that should be a text; a gateway may send anything. */
const text = (value) => (typeof value === "string" ? value : "");
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
const now = () => performance.now() / 1000;

// -- the session

/**
 * Connects to a gateway; waits for it up to `patienceSeconds`.
 *
 * address: host:port or tls://host:port; in browsers also ws:// and wss://.
 * options: token: given by the owner of the run; mode: train, act or evaluate; name: in the tables
 *   of the run; numEnvs: environments of one session; fingerprint: SHA-256 of the certificate, in
 *   hex (Node); patienceSeconds: 60; reportLatency: true.
 *
 * Throws Refused, Unavailable, Finished (the run is over), InvalidAddress.
 */
export async function connect(address, options = {}) {
  const session = new Session(address, options);
  await session._open();
  return session;
}

/**
 * A session; made by `connect`.
 *
 * observationSpec, actionSpec: expected and given by the gateway. seed: for the next episode.
 * version: of the parameters behind the newest action. latencies: newest round trips [seconds].
 */
export class Session {
  observationSpec = null;
  actionSpec = null;
  seed = 0;
  version = 0;
  latencies = [];
  _connection = null;
  _asking = false;
  _resume = "";
  _resumed = false;
  _seq = 0;
  _steps = 0;
  _total = 0;
  _length = 0;

  constructor(address, options) {
    const { token, mode, name, numEnvs } = options;
    this._address = address;
    this._where = parse(address);
    this._fingerprint = options.fingerprint ?? "";
    this._patience = options.patienceSeconds ?? 60;
    this._reports = options.reportLatency ?? true;
    const asked = { token, mode, name, num_envs: numEnvs };
    for (const key of Object.keys(asked)) if (!asked[key]) delete asked[key];
    this._hello = { kind: "hello", v: PROTOCOL, client: CLIENT, ...asked };
  }

  /**
   * Calls `play(seed)` for one episode after the other, until the run is over or `more()` is false.
   *
   * Returns the number of episodes that were played.
   */
  async episodes(play, more = () => true) {
    let played = 0;
    try {
      for (; more(); played++) await play(this.seed);
    } catch (error) {
      if (!(error instanceof Finished)) throw error;
    }
    return played;
  }

  /** Begins an episode; returns the first action. */
  async reset(observation) {
    this._total = this._length = 0;
    return (await this._ask({ kind: "reset", observation })).action;
  }

  /**
   * Reports the outcome of the last action; returns the next action.
   *
   * more: action: what was done, if not what was advised; metrics: {name: number}; terminated and
   * truncated: lists of booleans, in sessions of several environments.
   */
  async step(reward, observation, more = {}) {
    return (await this._ask({ kind: "step", reward, observation, ...more })).action;
  }

  /**
   * Ends the episode with the outcome of the last action; returns its {total, length}.
   *
   * more: observation: the last one, may be left out if the task itself has ended; truncated: true
   * if a time limit has ended it; action, metrics: as of `step`.
   */
  async end(reward, more = {}) {
    const answer = await this._ask({ kind: "end", reward, truncated: false, ...more });
    this.seed = answer.seed ?? this.seed;
    return { total: answer.return, length: answer.length };
  }

  /** Reports numbers as curves of their own. */
  metrics(values) {
    this._connection?.send({ kind: "metrics", values });
  }

  /** Says goodbye and closes the connection. */
  async close() {
    const connection = this._connection;
    this._connection = null;
    if (!connection) return;
    connection.send({ kind: "bye" });
    try {
      while ((await connection.receive(CONNECT_SECONDS)).kind !== "goodbye");
    } catch (error) {
      if (!(error instanceof Lost || error instanceof Refused)) throw error;
    }
    connection.close();
  }

  // -- requests

  async _ask(fields) {
    if (this._asking) throw new ClientError("wait for the answer of the request before");
    this._asking = true;
    try {
      const answer = await this._answer(fields);
      if (typeof fields.reward === "number" && !answer.local) {
        this._total += fields.reward;
        this._length += 1;
      }
      return answer;
    } finally {
      this._asking = false;
    }
  }

  /** Sends a request until it is answered, over as many connections as it takes. */
  async _answer(request) {
    const began = now();
    let alive = began;
    let fields = { ...request, seq: this._seq + 1 };
    let sent = false;
    for (;;) {
      try {
        if (!this._connection) {
          await this._open(alive);
          if (!this._resumed && fields.kind === "end") return this._ended(fields);
          // The episode was cut: it goes on as a new one from the present observation.
          if (!this._resumed) fields = { kind: "reset", observation: fields.observation, seq: 1 };
          sent = false;
        }
        if (!sent) this._connection.send(fields);
        sent = true;
        const answer = await this._connection.receive(SILENT_SECONDS);
        alive = now();
        if (!this._isAnswer(answer, fields)) continue;
        this._seq = fields.seq;
        this.version = answer.version ?? this.version;
        this._measure(now() - began);
        return answer;
      } catch (error) {
        if (this._connection?.lost || error instanceof Lost) this._drop();
        if (!(error instanceof Lost)) throw error;
        if (now() - alive > this._patience) throw new Unavailable(error.message);
      }
    }
  }

  /** Returns the answer to the end of an episode that was cut: nothing is left to ask. */
  _ended(fields) {
    const [total, length] = [this._total + fields.reward, this._length + 1];
    return { local: true, return: total, length, seed: this.seed };
  }

  _isAnswer(answer, fields) {
    const { kind } = answer;
    if (kind === "action" || kind === "episode") return answer.seq === fields.seq;
    if (kind === "error") {
      if (answer.fatal) this._drop();
      if (answer.code === "unavailable") throw new Unavailable(text(answer.message));
      throw new Refused(text(answer.code), text(answer.message));
    }
    if (kind === "goodbye") {
      this._drop();
      if (!answer.reconnect) throw new Finished(text(answer.reason));
      throw new Lost(text(answer.reason));
    }
    return false;
  }

  /** Connects until it succeeds; `alive` is the time of the last sign of life, if there was one. */
  async _open(alive) {
    const deadline = (alive ?? now()) + this._patience;
    let delay = alive === undefined ? 0 : FIRST_DELAY * Math.random();
    let longest = FIRST_DELAY;
    for (;;) {
      await sleep(delay);
      let retry = 0;
      let reason = "the gateway is busy";
      try {
        retry = await this._greet(await open(this._where, this._fingerprint));
        if (retry === null) return;
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
        reason = error.message;
      }
      if (longest === FIRST_DELAY) {
        const left = Math.max(0, deadline - now()).toFixed(0);
        console.warn(`${this._address}: ${reason}; trying again for ${left} s`);
      }
      longest = Math.min(LAST_DELAY, 1.5 * longest);
      delay = Math.max(retry, longest * Math.random());
      if (now() + delay > deadline) throw new Unavailable(`${this._address}: ${reason}`);
    }
  }

  /** Sends hello; returns null, or the seconds after which to try again. */
  async _greet(connection) {
    connection.send(this._resume ? { ...this._hello, resume: this._resume } : this._hello);
    let answer;
    try {
      answer = await connection.receive(CONNECT_SECONDS);
    } catch (error) {
      connection.close();
      throw error;
    }
    if (answer.kind === "welcome") {
      this._connection = connection;
      this._resumed = answer.resumed === true;
      this._resume = text(answer.resume);
      if (!this._resumed) this._seq = 0;
      this.observationSpec = answer.obs_spec;
      this.actionSpec = answer.action_spec;
      this.seed = answer.seed ?? 0;
      return null;
    }
    connection.close();
    if (answer.kind === "error") throw new Refused(text(answer.code), text(answer.message));
    if (answer.kind === "goodbye" && !answer.reconnect) throw new Finished(text(answer.reason));
    const { retry_after_seconds: seconds } = answer;
    return typeof seconds === "number" && seconds > 0 ? seconds : 0;
  }

  _drop() {
    this._connection?.close();
    this._connection = null;
  }

  _measure(seconds) {
    this._steps += 1;
    this.latencies.push(seconds);
    if (this.latencies.length > REPORT_STEPS) this.latencies.shift();
    if (this._reports && this._steps % REPORT_STEPS === 0) {
      const ordered = [...this.latencies].sort((a, b) => a - b);
      this.metrics({
        latency_p50_seconds: ordered[REPORT_STEPS / 2],
        latency_p99_seconds: ordered[(REPORT_STEPS * 99) / 100],
      });
    }
  }
}
