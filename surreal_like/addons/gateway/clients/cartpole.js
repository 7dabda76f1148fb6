/**
 * CartPole, as Gymnasium's CartPole-v1: a pole on a cart, which is pushed to the left or right.
 *
 *     node cartpole.js 127.0.0.1:7100
 *
 * plays it for a gateway until the run is over.
 */

import { connect } from "./surreal_client.js";

const GRAVITY = 9.8;
const POLE_MASS = 0.1;
const TOTAL_MASS = 1.1;
const HALF_LENGTH = 0.5; // of the pole [m]
const FORCE = 10;
const STEP_SECONDS = 0.02;
const LARGEST_ANGLE = (12 * 2 * Math.PI) / 360;
const LARGEST_POSITION = 2.4;
const LONGEST = 500;

export class CartPole {
  /** state: position, velocity, angle, angular velocity; random ones near 0 without it. */
  constructor(state) {
    this.state = state ?? Array.from({ length: 4 }, () => 0.1 * Math.random() - 0.05);
    this.steps = 0;
  }

  /** Pushes to the left (0) or to the right (1). */
  step(action) {
    let [x, speed, angle, turning] = this.state;
    const force = action === 1 ? FORCE : -FORCE;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const push = (force + POLE_MASS * HALF_LENGTH * turning ** 2 * sin) / TOTAL_MASS;
    const inertia = HALF_LENGTH * (4 / 3 - (POLE_MASS * cos ** 2) / TOTAL_MASS);
    const turn = (GRAVITY * sin - cos * push) / inertia;
    const shift = push - (POLE_MASS * HALF_LENGTH * turn * cos) / TOTAL_MASS;
    x += STEP_SECONDS * speed;
    speed += STEP_SECONDS * shift;
    angle += STEP_SECONDS * turning;
    turning += STEP_SECONDS * turn;
    this.state = [x, speed, angle, turning];
    this.steps += 1;
    const terminated = Math.abs(x) > LARGEST_POSITION || Math.abs(angle) > LARGEST_ANGLE;
    return { reward: 1, terminated, truncated: this.steps >= LONGEST };
  }
}

/** Plays one episode, and awaits `moved()` after each step; returns its {total, length}. */
export async function playEpisode(session, pole = new CartPole(), moved = () => {}) {
  let action = await session.reset(pole.state);
  for (;;) {
    const { reward, terminated, truncated } = pole.step(action);
    const observation = pole.state;
    await moved();
    if (terminated) return session.end(reward, { observation });
    if (truncated) return session.end(reward, { observation, truncated });
    action = await session.step(reward, observation);
  }
}

if (globalThis.process?.argv?.[1]?.endsWith("cartpole.js")) {
  const session = await connect(process.argv[2] ?? "127.0.0.1:7100");
  const played = await session.episodes(() => playEpisode(session));
  console.log(`${played} episodes played`);
}
