// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <memory>
#include <string_view>
#include <type_traits>

#include "remat/mip/concepts.hpp"
#include "remat/mip/model.hpp"

namespace remat {

/// Refers to a MIP backend of any type: what solvers take as an argument, so that they need not be templates.
///
/// It does not own the backend, which must live as long as it is used. Two pointers and a name; copies are cheap.
class mip_backend_ref {
 public:
  /// Refers to `backend`, which must outlive the reference and all copies of it.
  template <mip_backend B>
  requires(!std::same_as<B, mip_backend_ref>)
      mip_backend_ref(const B& backend)  // NOLINT: an implicit conversion, as of std::string_view
      : name_(B::name),
        backend_(std::addressof(backend)),
        solve_([](const void* b, const mip_model& model, const mip_options& options) {
          return static_cast<const B*>(b)->solve(model, options);
        }) {}

  /// The backend's name.
  [[nodiscard]] std::string_view name() const noexcept { return name_; }
  /// Calls `solve` of the backend, and throws what that throws.
  [[nodiscard]] mip_result solve(const mip_model& model, const mip_options& options) const {
    return solve_(backend_, model, options);
  }

 private:
  std::string_view name_;
  const void* backend_;
  mip_result (*solve_)(const void*, const mip_model&, const mip_options&);
};

}  // namespace remat
