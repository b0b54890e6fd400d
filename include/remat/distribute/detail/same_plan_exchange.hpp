// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/option.hpp"
#include "remat/distribute/detail/polling_interval.hpp"
#include "remat/distribute/mpi_crew.hpp"
#include "remat/problem/detail/operation_record.hpp"
#include "remat/problem/digest.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/detail/solution_bytes.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

void fields_of(auto& bytes, maybe_const<digest> auto& d) { bytes(d.high, d.low); }

/// The messages of `same_plan`. All functions that take the communicator are collective. They throw nothing but
/// `mpi_error`: an exception of one rank must not keep it from the next call of MPI, in which the others wait.
namespace same_plan_exchange {

using bytes = std::vector<std::byte>;

/// How a part of the exchange ended, on one rank or on all.
enum class kind : std::uint8_t { agreement, mismatch, exception };

struct outcome {
  kind what = kind::agreement;
  int rank = 0;                      ///< the rank that differs or has thrown
  std::optional<op_id> operation{};  ///< the first one that differs
  std::string text{};                ///< the message
  bool needs_details = false;  ///< the graphs differ: the begin of `text` is still to be made, from the operations
  std::exception_ptr thrown = nullptr;  ///< if this rank is `rank`: its exception
};

void fields_of(auto& bytes, maybe_const<outcome> auto& x) {
  bytes(x.what, x.rank, x.operation, x.text, x.needs_details);
}

/// The exception that is being handled, as the outcome of `rank`. `doing` says what failed.
[[nodiscard]] inline outcome thrown_on(int rank, const std::string& doing) {
  outcome x{.what = kind::exception, .rank = rank, .thrown = std::current_exception()};
  x.text = doing + ": ";
  try {
    throw;
  } catch (const std::exception& e) {
    x.text += e.what();
  } catch (...) {
    x.text += "an exception that is no std::exception";
  }
  return x;
}

/// Returns one outcome on every rank: that of the lowest rank on which not all is well.
[[nodiscard]] inline outcome agree(const communicator& ranks, const outcome& own) {
  const std::vector<bytes> all = ranks.gather(bytes_of(own));
  bytes chosen;
  if (ranks.rank() == 0) {
    outcome first;
    std::vector<std::uint32_t> others;
    for (const bytes& one : all) {
      outcome x = from_bytes<outcome>(one);
      if (x.what == kind::agreement) continue;
      if (first.what == kind::agreement)
        first = std::move(x);
      else if (x.what == first.what)
        others.push_back(static_cast<std::uint32_t>(x.rank));
    }
    const bool differ = first.what == kind::mismatch;
    if (others.size() == 1)
      first.text += "; rank " + std::to_string(others[0]) + (differ ? " differs" : " fails") + ", too";
    else if (!others.empty())
      first.text += "; ranks " + operation_records::in_words(others) + (differ ? " differ" : " fail") + ", too";
    chosen = bytes_of(first);
  }
  ranks.broadcast(chosen);
  outcome out = from_bytes<outcome>(chosen);
  if (out.what == kind::exception && out.rank == ranks.rank()) out.thrown = own.thrown;
  return out;
}

/// The settings that must be equal besides the graph, with their names.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> settings_of(const problem& p,
                                                                                  const digest_options& compare) {
  const auto bytes_in_words = [](std::int64_t count) {
    return count == problem::unlimited ? std::string("without a limit") : std::to_string(count) + " bytes";
  };
  const auto speed = [&](double host_link::*field) { return p.link() ? option_text((*p.link()).*field) : "not given"; };
  return {{"compare.names is", option_text(compare.names)},       {"compare.times is", option_text(compare.times)},
          {"its budget is", bytes_in_words(p.budget())},          {"the link's speed out is", speed(&host_link::out)},
          {"the link's speed in is", speed(&host_link::in)},      {"the link's latency is", speed(&host_link::latency)},
          {"its host budget is", bytes_in_words(p.host_budget())}};
}

/// Compares this rank's problem with what rank 0 has sent: its settings and the digest of its graph.
[[nodiscard]] inline outcome difference_from(std::span<const std::byte> sent, int rank, const problem& p,
                                             const digest_options& compare, const digest& own) {
  byte_reader in(sent);
  outcome out{.rank = rank};
  for (const auto& [name, value] : settings_of(p, compare)) {
    std::string there;
    in.get(there);
    if (there == value || out.what == kind::mismatch) continue;
    out.what = kind::mismatch;
    out.text = "rank " + std::to_string(rank) + " has another problem than rank 0: " + name + " " + value +
               ", on rank 0 " + there;
  }
  const auto there = in.get<digest>();
  if (out.what == kind::agreement && own != there) {
    out.what = kind::mismatch;
    out.needs_details = true;
  }
  return out;
}

/// The first operation in which the graph of this rank differs from the digests of rank 0, with its record.
[[nodiscard]] inline bytes first_difference_from(std::span<const std::byte> sent, const problem& p,
                                                 const graph_digest& own) {
  graph_digest there;
  there.operations = from_bytes<std::vector<digest>>(sent);
  const std::optional<op_id> first = first_difference(own, there);
  byte_writer out;
  out.put(first);
  if (first && index(*first) < p.graph().num_operations) out.put(record_of(p.graph(), index(*first)));
  return out.take();
}

/// The outcome on rank 0 from the reply of rank `differing` (`first_difference_from`). `rest` ends the message.
[[nodiscard]] inline outcome described(std::span<const std::byte> reply, int differing, const std::string& rest,
                                       const problem& p, const digest_options& compare) {
  byte_reader in(reply);
  outcome out{.what = kind::mismatch, .rank = differing};
  std::optional<operation_record> there, here;
  in.get(out.operation);
  if (out.operation) {
    if (!in.rest().empty()) there = in.get<operation_record>();
    if (index(*out.operation) < p.graph().num_operations) here = record_of(p.graph(), index(*out.operation));
  }
  out.text =
      "rank " + std::to_string(differing) + " has another graph than rank 0: " +
      difference(out.operation ? index(*out.operation) : 0, there, here, {compare.names, compare.times}, "on rank 0") +
      rest;
  return out;
}

/// Compares the problems of all ranks with that of rank 0.
[[nodiscard]] inline outcome compare(const communicator& ranks, const problem& p, const digest_options& options) {
  constexpr const char* doing = "could not compare its graph";
  const int rank = ranks.rank();
  outcome own{.rank = rank};
  graph_digest mine;
  bytes sent;
  try {
    mine = digest_of(p.graph(), options);
    if (rank == 0) {
      byte_writer out;
      for (const auto& setting : settings_of(p, options)) out.put(setting.second);
      out.put(mine.whole);
      sent = out.take();
    }
  } catch (...) {
    own = thrown_on(rank, doing);
  }
  ranks.broadcast(sent);
  if (rank != 0 && own.what == kind::agreement && !sent.empty()) try {
      own = difference_from(sent, rank, p, options, mine.whole);
    } catch (...) {
      own = thrown_on(rank, doing);
    }
  outcome all = agree(ranks, own);
  if (!all.needs_details) return all;

  // Only now the digests of all operations travel.
  own = {.rank = rank};
  sent.clear();
  if (rank == 0) try {
      sent = bytes_of(mine.operations);
    } catch (...) {
      own = thrown_on(rank, doing);
    }
  ranks.broadcast(sent);
  bytes reply;
  if (rank == all.rank && !sent.empty()) try {
      reply = first_difference_from(sent, p, mine);
    } catch (...) {
      own = thrown_on(rank, doing);
    }
  const std::vector<bytes> replies = ranks.gather(reply);
  if (rank == 0 && own.what == kind::agreement) try {
      const bytes& one = replies[static_cast<std::size_t>(all.rank)];
      if (!one.empty()) own = described(one, all.rank, all.text, p, options);
    } catch (...) {
      own = thrown_on(rank, doing);
    }
  return agree(ranks, own);
}

/// Waits until all ranks are here, asleep: rank 0 comes late, and may need the processor.
inline void sleep_until_all_are_here(const communicator& ranks) {
  MPI_Request all = MPI_REQUEST_NULL;
  if (const int code = MPI_Ibarrier(ranks.get(), &all); code != MPI_SUCCESS) throw mpi_error("MPI_Ibarrier", code);
  for (polling_interval interval;;) {
    int here = 0;
    if (const int code = MPI_Test(&all, &here, MPI_STATUS_IGNORE); code != MPI_SUCCESS)
      throw mpi_error("MPI_Test", code);
    if (here != 0) return;
    std::this_thread::sleep_for(interval.next());
  }
}

/// Lets rank 0 call `plan` and the others `meanwhile`, unless it is empty, and gives the solution to all ranks. `own`
/// says how that went on this rank.
[[nodiscard]] inline solution plan_on_rank_0(const communicator& ranks, const problem& p,
                                             const std::function<solution(const problem&)>& plan,
                                             const std::function<void()>& meanwhile, outcome& own) {
  const int rank = ranks.rank();
  own = {.rank = rank};
  solution answer;
  bytes sent;
  if (rank == 0) try {
      answer = plan(p);
      if (answer.plan) {
        const check_report report = check(p, *answer.plan);
        if (!report.valid()) throw bad_argument("the schedule is not valid: " + report.message());
        answer.peak_bytes = report.peak_bytes;
        answer.host_peak_bytes = report.host_peak_bytes;
        answer.time = report.time;
      }
      sent = bytes_of(answer);
    } catch (...) {
      own = thrown_on(rank, "could not plan");
    }
  if (rank != 0 && meanwhile) try {
      meanwhile();
    } catch (...) {
      own = thrown_on(rank, "could not help to plan");
    }
  sleep_until_all_are_here(ranks);
  ranks.broadcast(sent);
  if (rank != 0 && own.what == kind::agreement && !sent.empty()) try {
      answer = from_bytes<solution>(sent);
      if (answer.plan) {
        const check_report report = check(p, *answer.plan);
        if (!report.valid() || report.peak_bytes != answer.peak_bytes ||
            report.host_peak_bytes != answer.host_peak_bytes)
          throw internal_error("the graph has the digest of rank 0's, but its schedule does not fit: " +
                               report.message());
      }
    } catch (...) {
      own = thrown_on(rank, "could not take the plan");
    }
  return answer;
}

}  // namespace same_plan_exchange

}  // namespace REMAT_NAMESPACE::detail
