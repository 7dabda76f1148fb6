/** Sixteen CartPoles, each a session of the gateway that has sent this page. */

import { CartPole, playEpisode } from "./cartpole.js";
import { connect, Finished } from "./surreal_client.js";

const POLES = 16;
const COLUMNS = 4;
const RECENT = 100;
const LARGEST_RETURN = 500;
const REPORT_SECONDS = 0.5;
const STEP_SECONDS = 0.02;
const CURVE_POINTS = 4000;

const secure = location.protocol === "https:";
const address = `${secure ? "tls://" : ""}${location.host}`;
// Where clients need a token, it stands behind the address: #token=...
const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
const element = (id) => document.getElementById(id);

const players = [];
let mode = "train";
let realTime = false;
let steps = 0;
let returns = []; // of this mode, newest last
const points = []; // {total, mode, mean} of all episodes

/** One pole and its session. */
class Player {
  pole = new CartPole();
  session = null;

  constructor(index) {
    this.name = `page-${index + 1}`;
  }

  /** Plays until the run is over; with a new session whenever the mode has changed. */
  async run() {
    for (;;) {
      const played = mode;
      this.session = await connect(address, { mode: played, name: this.name, token });
      while (mode === played) {
        this.pole = new CartPole();
        const { total } = await playEpisode(this.session, this.pole, () => this.moved());
        if (mode === played) count(total);
      }
      await this.session.close();
    }
  }

  async moved() {
    steps += 1;
    if (!realTime) return;
    await new Promise((resolve) => setTimeout(resolve, 1000 * STEP_SECONDS));
  }
}

function mean(numbers) {
  return numbers.reduce((a, b) => a + b, 0) / numbers.length;
}

function count(total) {
  returns.push(total);
  if (returns.length > RECENT) returns.shift();
  points.push({ total, mode, mean: mean(returns) });
  if (points.length > CURVE_POINTS) points.shift();
  element("episodes").textContent = Number(element("episodes").textContent) + 1;
}

// -- what is shown

function drawPoles() {
  const canvas = element("poles");
  const brush = canvas.getContext("2d");
  const [width, height] = [canvas.width / COLUMNS, canvas.height / (POLES / COLUMNS)];
  const ink = getComputedStyle(document.body).color;
  brush.clearRect(0, 0, canvas.width, canvas.height);
  players.forEach(({ pole }, index) => {
    const [x, , angle] = pole.state;
    brush.save();
    brush.translate((index % COLUMNS) * width, Math.floor(index / COLUMNS) * height);
    brush.strokeStyle = brush.fillStyle = ink;
    brush.globalAlpha = 0.35;
    brush.fillRect(0.05 * width, 0.86 * height, 0.9 * width, 2);
    brush.fillRect(0.05 * width, 0.95 * height, (0.9 * width * pole.steps) / LARGEST_RETURN, 3);
    brush.globalAlpha = 1;
    brush.translate(width / 2 + (x / 2.4) * 0.42 * width, 0.8 * height);
    brush.fillRect(-18, -7, 36, 14);
    brush.rotate(angle);
    brush.fillStyle = "#d2691e";
    brush.fillRect(-3, -0.62 * height, 6, 0.62 * height);
    brush.restore();
  });
}

function drawCurve() {
  const canvas = element("curve");
  const brush = canvas.getContext("2d");
  const left = 50;
  const bottom = canvas.height - 12;
  const high = (value) => bottom - (value / LARGEST_RETURN) * (bottom - 12);
  const right = (index) => left + (index / Math.max(1, points.length - 1)) * (canvas.width - left - 10);
  brush.clearRect(0, 0, canvas.width, canvas.height);
  brush.fillStyle = getComputedStyle(document.body).color;
  brush.font = "18px system-ui, sans-serif";
  for (const value of [0, 100, 200, 300, 400, 475]) {
    brush.globalAlpha = 1;
    brush.fillText(value, 8, high(value) + 6);
    brush.globalAlpha = 0.25;
    brush.fillRect(left, high(value), canvas.width - left, 1);
  }
  points.forEach(({ total, mode: played }, index) => {
    brush.fillStyle = played === "train" ? "#1f6feb" : "#2da44e";
    brush.globalAlpha = 0.35;
    brush.fillRect(right(index) - 2, high(total) - 2, 4, 4);
  });
  brush.globalAlpha = 1;
  brush.lineWidth = 3;
  brush.strokeStyle = "#d2691e";
  brush.beginPath();
  points.forEach((point, index) => brush.lineTo(right(index), high(point.mean)));
  brush.stroke();
}

function showReturns() {
  element("counted").textContent = returns.length;
  element("mean").textContent = returns.length ? mean(returns).toFixed(1) : "–";
}

function report(since) {
  const seconds = (performance.now() - since.time) / 1000;
  element("rate").textContent = Math.round((steps - since.steps) / seconds);
  showReturns();
  const trips = players.flatMap(({ session }) => session?.latencies ?? []).sort((a, b) => a - b);
  if (trips.length) {
    element("latency").textContent = `${(1000 * trips[trips.length >> 1]).toFixed(1)} ms`;
  }
  element("version").textContent = Math.max(0, ...players.map(({ session }) => session?.version ?? 0));
  drawCurve();
}

function draw() {
  drawPoles();
  requestAnimationFrame(draw);
}

element("controls").addEventListener("change", (event) => {
  if (event.target.name === "mode") {
    mode = event.target.value;
    returns = [];
    showReturns();
  } else {
    realTime = event.target.checked;
  }
});
// A browser that loads the page again may have kept the choice.
element("controls").reset();

for (let index = 0; index < POLES; index++) players.push(new Player(index));
draw();
let since = { time: performance.now(), steps: 0 };
setInterval(() => {
  report(since);
  since = { time: performance.now(), steps };
}, 1000 * REPORT_SECONDS);
for (const player of players) {
  player.run().catch((error) => {
    const over = error instanceof Finished;
    element("notice").textContent = over ? "The run is over." : error.message;
  });
}
