// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The common part of the programs that train, compiled once (`program.cpp`): their options, and a table with one run
/// for each solver and budget.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "train/layers.hpp"
#include "train/trainer.hpp"

namespace train {

/// An option of one program: a size of at least 1, a rate from 0 to 0.9, or a file.
struct program_option {
  std::string name{};
  std::variant<std::int64_t*, float*, std::string*>
      value{};  ///< its default; the program writes the value of the command line there
  std::string help{};
};

/// The `main` function of a program that trains without rematerialization, and with it under each solver and budget,
/// and compares the bits. It calls `make` after it has read the command line, with the options `own`. Returns the exit
/// status: 0 if all runs have the same bits and the loss has fallen; 1 if not; another number for unusable arguments.
int train_main(int argc, char** argv, const std::string& what, float rate, const std::vector<program_option>& own,
               const std::function<training_task()>& make);

/// Makes the task of a network whose training step ends in `loss`.
template <class Network>
training_task make_task(const Network& net, tensor_id loss, std::vector<tensor_id> inputs,
                        std::function<void(std::uint64_t, std::span<aligned_buffer>)> load) {
  training_task task;
  task.step = net.build(loss);
  task.parameters = net.parameters;
  task.inputs = std::move(inputs);
  task.load = std::move(load);
  return task;
}

}  // namespace train
