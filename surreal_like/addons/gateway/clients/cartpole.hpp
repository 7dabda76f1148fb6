/** CartPole, as Gymnasium's CartPole-v1: a pole on a cart, which is pushed to the left or right. */
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

#include "surreal_client.hpp"

struct CartPole {
  std::array<double, 4> state{};  // position, velocity, angle, angular velocity
  int steps = 0;

  explicit CartPole(const std::array<double, 4>& begin) : state(begin) {}

  /** Begins at random, near 0. */
  explicit CartPole(std::int64_t seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    std::uniform_real_distribution<double> near(-0.05, 0.05);
    for (double& each : state) each = near(random);
  }

  /** Pushes to the left (0) or to the right (1). */
  void step(std::int64_t action) {
    const double gravity = 9.8, pole_mass = 0.1, total_mass = 1.1, half_length = 0.5, dt = 0.02;
    const double force = action == 1 ? 10.0 : -10.0;
    const auto [x, speed, angle, turning] = state;
    const double cosine = std::cos(angle), sine = std::sin(angle);
    const double push = (force + pole_mass * half_length * turning * turning * sine) / total_mass;
    const double inertia = half_length * (4.0 / 3.0 - pole_mass * cosine * cosine / total_mass);
    const double turn = (gravity * sine - cosine * push) / inertia;
    const double shift = push - pole_mass * half_length * turn * cosine / total_mass;
    state = {x + dt * speed, speed + dt * shift, angle + dt * turning, turning + dt * turn};
    ++steps;
  }

  bool terminated() const {
    return std::abs(state[0]) > 2.4 || std::abs(state[2]) > 12 * 2 * M_PI / 360;
  }
  bool truncated() const { return steps >= 500; }

  /** Returns what a gateway's client sends. */
  std::array<float, 4> observation() const {
    std::array<float, 4> found{};
    for (std::size_t index = 0; index < 4; ++index) found[index] = static_cast<float>(state[index]);
    return found;
  }
};

/** Plays one episode. */
inline surreal::Result play_episode(surreal::Session& session, CartPole pole) {
  std::int64_t action = session.reset(pole.observation()).integer();
  for (;;) {
    pole.step(action);
    if (pole.terminated() || pole.truncated()) {
      surreal::More more;
      more.observation = pole.observation();
      more.truncated = !pole.terminated();
      return session.end(1.0, more);
    }
    action = session.step(1.0, pole.observation()).integer();
  }
}
