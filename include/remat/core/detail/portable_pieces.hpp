// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/run.hpp"

/// Pieces that may run in another process: what they need and what they find are values whose fields are listed
/// (`lists_fields`).
namespace REMAT_NAMESPACE::detail {

/// Lets other processes run `pieces` as those of `kind`, whose `piece_kind` is `portable_kind`.
///
/// `share(out)` appends what all pieces need to a `byte_writer`, `question(i)` returns what piece i needs beside, and
/// `take(i, answer)` keeps an `Answer` that another process has found; it throws if that cannot be one.
template <class Answer, class Share, class Question, class Take>
void let_others_run(piece_list& pieces, std::string_view kind, Share share, Question question, Take take) {
  pieces.kind = kind;
  pieces.shared = [share = std::move(share)] {
    byte_writer out;
    share(out);
    return out.take();
  };
  pieces.encode = [question = std::move(question)](std::size_t i) { return bytes_of(question(i)); };
  pieces.take = [take = std::move(take)](std::size_t i, std::span<const std::byte> bytes) {
    take(i, from_bytes<Answer>(bytes));
  };
}

/// How another process runs pieces of `kind`. `open(in)` reads what `share` appended, and returns the function that
/// makes an answer of a `Question` and the limits of its piece.
template <class Question, class Open>
[[nodiscard]] piece_kind portable_kind(std::string_view kind, Open open) {
  return {std::string(kind), [open = std::move(open)](std::span<const std::byte> shared) -> piece_kind::runner {
            byte_reader in(shared);
            return [solve = open(in)](std::span<const std::byte> piece, const run_control& run) {
              return bytes_of(solve(from_bytes<Question>(piece), run));
            };
          }};
}

}  // namespace REMAT_NAMESPACE::detail
