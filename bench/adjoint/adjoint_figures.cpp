// SPDX-License-Identifier: BSL-1.0
// adjoint_figures: remat/adjoint.hpp as CSV. For marches of 10³ to 10⁶ steps and 5 to 80 slots: steps run forward,
// actions, and processor nanoseconds for an action. For unknown ends: the largest and the mean of (advances of
// online_adjoint) / (the least with a known end) over the lengths up to 20,000, and the same for the proven bound. Of
// steps of different costs with a disk: the cost of a division at the fractions of the cost, over the least. Of
// copies: the costs of one to three tiers, and the times of sequences with a disk whose copies follow one another, run
// beside the march, and of the sequence that is made for that. Each step takes 1 forward and 2 for its reversal.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

#include "command_line.hpp"
#include "remat/adjoint.hpp"
#include "remat/core/detail/random.hpp"

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

/// The cost of steps of different costs.
double cost_of(remat::adjoint_sequence sequence, const remat::adjoint_tier& memory, const remat::adjoint_tier& disk,
               const std::vector<double>& costs) {
  remat::adjoint_checker checker(sequence.steps(), memory, disk, costs);
  for (auto a = sequence.next(); a.verb != adjoint_verb::done; a = sequence.next()) checker.take(a);
  return checker.report().cost;
}

/// The cost of a division at the fractions of the cost, over the least cost, on random marches of 5 to 100 steps with 1
/// to 6 slots in memory and 1 to 10 on the disk. A step costs 1, or with the chance `share` up to `most`.
void unequal(double most, double share) {
  remat::detail::random_source random(1);
  double largest = 1, sum = 0;
  constexpr int marches = 400;
  for (int k = 0; k < marches; ++k) {
    std::vector<double> costs(5 + random.below(96));
    double all = 0;
    for (double& cost : costs) {
      cost = share == 1 ? 1 + (most - 1) * random.uniform() : random.uniform() < share ? most : 1;
      all += cost;
    }
    const double mean = all / static_cast<double>(costs.size());
    const remat::adjoint_tier memory{static_cast<std::int64_t>(1 + random.below(6))};
    const remat::adjoint_tier disk{static_cast<std::int64_t>(1 + random.below(10)),
                                   mean * std::exp(4 * random.uniform() - 2),
                                   mean * std::exp(4 * random.uniform() - 2)};
    // Never used, a third tier makes the sequence divide at the fractions.
    const remat::adjoint_tier tiers[] = {memory, disk, {1, 1e300, 1e300}};
    const double ratio = cost_of(remat::adjoint_sequence(costs, tiers), memory, disk, costs) /
                         cost_of(remat::adjoint_sequence(costs, memory, disk), memory, disk, costs);
    largest = std::max(largest, ratio);
    sum += ratio;
  }
  std::printf("%g,%g,%.3f,%.3f\n", most, share, largest, sum / marches);
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

double time_of(remat::adjoint_sequence sequence, const remat::adjoint_tier& memory, const remat::adjoint_tier& disk,
               std::uint32_t buffers) {
  remat::adjoint_checker checker(sequence.steps(), memory, disk);
  checker.overlap_copies(buffers, 2);
  for (auto a = sequence.next(); a.verb != adjoint_verb::done; a = sequence.next()) checker.take(a);
  return checker.report().time;
}

void copies(std::uint64_t steps, double write) {
  const remat::adjoint_tier memory{10}, few{20, write, write}, far{1000, 4 * write, 4 * write}, disk{200, write, write};
  const remat::adjoint_sequence serial(steps, memory, disk);
  const double one = remat::adjoint_sequence(steps, 10).cost();
  const double begin = processor_seconds();
  const double three = remat::adjoint_sequence(steps, {memory, few, far}).cost();
  const double milliseconds = (processor_seconds() - begin) * 1e3;
  const double reversals = 2 * static_cast<double>(steps);
  std::printf("%llu,%g,%.0f,%.0f,%.0f,%.1f", static_cast<unsigned long long>(steps), write, one,
              remat::adjoint_sequence(steps, memory, few).cost(), three, milliseconds);
  std::printf(",%.0f,%.0f,%.0f\n", serial.cost() + reversals, time_of(serial, memory, disk, 2),
              time_of(remat::overlapped_sequence(steps, memory, disk, 2, 2), memory, disk, 2));
}

int run(int argc, char** argv) {
  bench::command_line app("adjoint_figures",
                          "Actions of remat/adjoint.hpp and nanoseconds for each, on marches of 1,000 to 1,000,000 "
                          "steps; how far a march of unknown length is from one of known length; what further tiers, "
                          "and copies beside the march, gain; as CSV.");
  if (!app.read(argc, argv)) return 0;
  std::puts("steps,slots,advances,actions,nanoseconds");
  for (const std::uint64_t steps : {1'000U, 10'000U, 100'000U, 1'000'000U})
    for (const std::uint32_t slots : {5U, 10U, 20U, 40U, 80U}) known(steps, slots);
  std::puts("slots,largest ratio,mean ratio,proven ratio");
  for (const std::uint32_t slots : {5U, 10U, 20U, 40U, 80U}) unknown(slots);
  std::puts("cost at most,share of such steps,largest ratio,mean ratio");
  for (const double most : {1.1, 2.0, 11.0}) unequal(most, 1);
  unequal(100, 0.125);
  std::puts("steps,write,memory alone,two tiers,three tiers,milliseconds,in turn,beside,made for it");
  for (const std::uint64_t steps : {1'000U, 10'000U, 100'000U})
    for (const double write : {1.0, 4.0, 16.0, 64.0}) copies(steps, write);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return shared::run_program("adjoint_figures", [&] { return run(argc, argv); });
}
