// SPDX-License-Identifier: BSL-1.0
// adjoint_figures: remat/adjoint.hpp as CSV. For marches of 10³ to 10⁶ steps and 5 to 80 slots: steps run forward,
// actions, and processor nanoseconds for an action. For unknown ends: the largest and the mean of (advances of
// online_adjoint) / (the least with a known end) over the lengths up to 20,000, and the same for the proven bound.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

#include "command_line.hpp"
#include "remat/adjoint.hpp"

namespace {

using remat::adjoint_verb;

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void known(std::uint64_t steps, std::uint32_t slots) {
  std::uint64_t actions = 0, advances = 0;
  const double begin = processor_seconds();
  remat::adjoint_sequence sequence(steps, slots);
  for (auto a = sequence.next(); a.verb != adjoint_verb::done; a = sequence.next(), ++actions)
    advances += a.verb == adjoint_verb::advance ? a.last - a.first : 0;
  const double nanoseconds = (processor_seconds() - begin) * 1e9 / static_cast<double>(actions);
  std::printf("%llu,%u,%llu,%llu,%.1f\n", static_cast<unsigned long long>(steps), slots,
              static_cast<unsigned long long>(advances), static_cast<unsigned long long>(actions), nanoseconds);
}

/// The advances of one march of `steps` steps, given the march as it stands then.
std::uint64_t advances_from(remat::online_adjoint march) {
  std::uint64_t advances = march.steps();
  march.finish();
  for (auto a = march.next(); a.verb != adjoint_verb::done; a = march.next())
    advances += a.verb == adjoint_verb::advance ? a.last - a.first : 0;
  return advances;
}

void unknown(std::uint32_t slots) {
  double largest = 0, sum = 0, proven = 0;
  std::uint64_t lengths = 0;
  remat::online_adjoint march(slots);
  while (march.steps() < 20'000) {
    if (march.next().verb != adjoint_verb::advance) continue;
    const std::uint64_t steps = march.steps();
    if (steps < 2 || (steps > 1000 && steps % 97 != 0)) continue;
    const double least = remat::adjoint_sequence(steps, slots).cost();
    const double ratio = static_cast<double>(advances_from(march)) / least;
    sum += ratio;
    ++lengths;
    if (steps < 50) continue;  // one step more is much there
    largest = std::max(largest, ratio);
    proven = std::max(proven, static_cast<double>(remat::online_adjoint::most_advances(steps, slots)) / least);
  }
  std::printf("%u,%.3f,%.3f,%.3f\n", slots, largest, sum / static_cast<double>(lengths), proven);
}

int run(int argc, char** argv) {
  bench::command_line app("adjoint_figures",
                          "Actions of remat/adjoint.hpp and nanoseconds for each, on marches of 1,000 to 1,000,000 "
                          "steps, and how far a march of unknown length is from one of known length, as CSV.");
  if (!app.read(argc, argv)) return 0;
  std::puts("steps,slots,advances,actions,nanoseconds");
  for (const std::uint64_t steps : {1'000U, 10'000U, 100'000U, 1'000'000U})
    for (const std::uint32_t slots : {5U, 10U, 20U, 40U, 80U}) known(steps, slots);
  std::puts("slots,largest ratio,mean ratio,proven ratio");
  for (const std::uint32_t slots : {5U, 10U, 20U, 40U, 80U}) unknown(slots);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("adjoint_figures", [&] { return run(argc, argv); });
}
