// SPDX-License-Identifier: BSL-1.0
// The gradient of a march in time, with few of its states in memory: three ways to call remat/adjoint.hpp.
#include "remat/adjoint.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>

// A pendulum: one step, and the gradient of its input from that of its output.
struct state {
  double angle = 1, speed = 0;
};
constexpr double dt = 1e-3;
void step(state& x, std::uint64_t) {
  x.speed -= dt * std::sin(x.angle);
  x.angle += dt * x.speed;
}
void reverse_step(const state& x, state& gradient) {
  gradient.speed += dt * gradient.angle;
  gradient.angle -= dt * std::cos(x.angle) * gradient.speed;
}

int main() {
  // A state that can be copied, a known number of steps.
  state gradient{1, 0};  // of the last angle
  remat::reverse_steps(state{}, 100'000, 20, step, [&](state& x, std::uint64_t) { reverse_step(x, gradient); });
  std::printf("known end:   %.6f\n", gradient.angle);

  // The actions themselves: 20 slots in memory, and a disk that takes 50 steps for a state.
  remat::adjoint_sequence sequence(100'000, {20}, {1'000, 50, 50});
  std::uint64_t steps_run = 0, writes = 0;
  for (remat::adjoint_action a = sequence.next(); a.verb != remat::adjoint_verb::done; a = sequence.next()) {
    if (a.verb == remat::adjoint_verb::advance) steps_run += a.last - a.first;
    if (a.verb == remat::adjoint_verb::store && a.slot.tier == 1) ++writes;
  }
  std::printf("with a disk: %llu steps forward, %llu states written\n", static_cast<unsigned long long>(steps_run),
              static_cast<unsigned long long>(writes));

  // The end is not known: march until the pendulum turns back for the second time.
  remat::online_adjoint march(20);
  state x, kept[20], other{1, 0};
  for (remat::adjoint_action a = march.next(); a.verb != remat::adjoint_verb::done; a = march.next()) {
    const double speed = x.speed;
    if (a.verb == remat::adjoint_verb::store) kept[a.slot.index] = x;
    if (a.verb == remat::adjoint_verb::restore) x = kept[a.slot.index];
    if (a.verb == remat::adjoint_verb::reverse) reverse_step(x, other);
    if (a.verb != remat::adjoint_verb::advance) continue;
    for (std::uint64_t i = a.first; i < a.last; ++i) step(x, i);
    if (speed > 0 && x.speed <= 0 && !march.finished()) march.finish();
  }
  std::printf("unknown end: %.6f after %llu steps\n", other.angle, static_cast<unsigned long long>(march.steps()));
}
