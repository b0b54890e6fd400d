// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Matrix products on a CUDA device: by cuBLAS, which is loaded when the program runs, or by a kernel of this example.
/// A program that links cuBLAS does not even start if cuBLAS is missing; this one does.

#include <cuda_runtime.h>
#include <dlfcn.h>
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define REMAT_EXAMPLE_HAS_CUBLAS
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "train/gpu_options.hpp"
#include "train/tile_product.cuh"

namespace train::gpu {

/// Computes matrix products. The results of one object are the same bits in each run, on one device.
class products {
 public:
  virtual ~products() = default;
  /// Enqueues out = a b. It may use `workspace` until the work has ended.
  virtual void multiply(const product_sizes& s, const factor<float>& a, const factor<float>& b,
                        const product_result<float>& out, std::span<std::byte> workspace, cudaStream_t stream) = 0;
  virtual void multiply(const product_sizes& s, const factor<bfloat16>& a, const factor<bfloat16>& b,
                        const product_result<bfloat16>& out, std::span<std::byte> workspace, cudaStream_t stream) = 0;
  /// The bytes of workspace that `multiply` is to be given, if `wanted` can be had.
  [[nodiscard]] virtual std::int64_t workspace(std::int64_t wanted) const = 0;
  /// The name of what computes, for reports.
  [[nodiscard]] virtual std::string name() const = 0;
};

/// The kernel of tile_product.cuh.
class own_products final : public products {
 public:
  void multiply(const product_sizes& s, const factor<float>& a, const factor<float>& b,
                const product_result<float>& out, std::span<std::byte>, cudaStream_t stream) override {
    enqueue(s, a, b, out, stream);
  }
  void multiply(const product_sizes& s, const factor<bfloat16>& a, const factor<bfloat16>& b,
                const product_result<bfloat16>& out, std::span<std::byte>, cudaStream_t stream) override {
    enqueue(s, a, b, out, stream);
  }
  [[nodiscard]] std::int64_t workspace(std::int64_t) const override { return 0; }
  [[nodiscard]] std::string name() const override { return "own"; }

 private:
  template <class T>
  static void enqueue(const product_sizes& s, const factor<T>& a, const factor<T>& b, const product_result<T>& out,
                      cudaStream_t stream) {
    if (s.rows == 0 || s.columns == 0) return;
    constexpr std::int64_t most = 65535;
    const std::int64_t down = (s.rows + tile::side - 1) / tile::side;
    if (down > most)
      throw std::invalid_argument("the own matrix product takes at most " + std::to_string(most * tile::side) +
                                  " rows; here " + std::to_string(s.rows));
    const dim3 grid(static_cast<unsigned>((s.columns + tile::side - 1) / tile::side), static_cast<unsigned>(down));
    multiply_tiles<T><<<grid, tile::threads, 0, stream>>>(s, a, b, out);
  }
};

#ifdef REMAT_EXAMPLE_HAS_CUBLAS

/// cuBLAS 12 or 13, whichever dlopen finds: in LD_LIBRARY_PATH, or where the system keeps its libraries.
class cublas_products final : public products {
 public:
  /// The library, which stays open; null if there is none.
  static void* open() {
    for (const char* file : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
      if (void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return library;
    return nullptr;
  }
  /// `library`: of `open`; `tensor_cores`: products of single precision in TF32. Throws `std::runtime_error` if a call
  /// of cuBLAS fails.
  cublas_products(void* library, bool tensor_cores)
      : library_(library), singles_(tensor_cores ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F) {
    load(create_, "cublasCreate_v2");
    load(destroy_, "cublasDestroy_v2");
    load(set_stream_, "cublasSetStream_v2");
    load(set_workspace_, "cublasSetWorkspace_v2");
    load(set_atomics_mode_, "cublasSetAtomicsMode");
    load(get_version_, "cublasGetVersion_v2");
    load(words_, "cublasGetStatusString");
    load(multiply_, "cublasGemmEx");
    require(create_(&handle_), "cublasCreate");
    require(set_atomics_mode_(handle_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
    require(get_version_(handle_, &version_), "cublasGetVersion");
  }
  cublas_products(const cublas_products&) = delete;
  cublas_products& operator=(const cublas_products&) = delete;
  ~cublas_products() override {
    if (handle_ != nullptr) static_cast<void>(destroy_(handle_));
  }

  void multiply(const product_sizes& s, const factor<float>& a, const factor<float>& b,
                const product_result<float>& out, std::span<std::byte> workspace, cudaStream_t stream) override {
    enqueue(s, a, b, out, CUDA_R_32F, singles_, workspace, stream);
  }
  void multiply(const product_sizes& s, const factor<bfloat16>& a, const factor<bfloat16>& b,
                const product_result<bfloat16>& out, std::span<std::byte> workspace, cudaStream_t stream) override {
    enqueue(s, a, b, out, CUDA_R_16BF, CUBLAS_COMPUTE_32F, workspace, stream);
  }
  [[nodiscard]] std::int64_t workspace(std::int64_t wanted) const override { return wanted; }
  [[nodiscard]] std::string name() const override { return "cuBLAS " + std::to_string(version_); }

 private:
  template <class Function>
  void load(Function& to, const char* symbol) {
    to = reinterpret_cast<Function>(dlsym(library_, symbol));
    if (to == nullptr) throw std::runtime_error(std::string("the cuBLAS found has no function ") + symbol);
  }
  void require(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string(what) + ": " + words_(status));
  }
  template <class T>
  void enqueue(const product_sizes& s, const factor<T>& a, const factor<T>& b, const product_result<T>& out,
               cudaDataType element, cublasComputeType_t sums, std::span<std::byte> workspace, cudaStream_t stream) {
    require(set_stream_(handle_, stream), "cublasSetStream");  // which resets the workspace
    require(set_workspace_(handle_, workspace.data(), workspace.size()), "cublasSetWorkspace");
    // cuBLAS is column-major, so it sees the transposes: outᵀ = bᵀ aᵀ.
    const float one = 1, zero = 0;
    require(multiply_(handle_, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                      narrow(s.columns), narrow(s.rows), narrow(s.depth), &one, b.data, element, narrow(b.row), a.data,
                      element, narrow(a.row), &zero, out.data, element, narrow(out.row), sums, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
  }
  static int narrow(std::int64_t n) {
    if (n > std::numeric_limits<int>::max())
      throw std::invalid_argument("a matrix has " + std::to_string(n) + " rows or columns, over cuBLAS's 2^31 - 1");
    return static_cast<int>(n);
  }

  void* library_ = nullptr;
  decltype(&cublasCreate_v2) create_ = nullptr;
  decltype(&cublasDestroy_v2) destroy_ = nullptr;
  decltype(&cublasSetStream_v2) set_stream_ = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace_ = nullptr;
  decltype(&cublasSetAtomicsMode) set_atomics_mode_ = nullptr;
  decltype(&cublasGetVersion_v2) get_version_ = nullptr;
  decltype(&cublasGetStatusString) words_ = nullptr;
  // cublasGemmEx has an overload in C++.
  cublasStatus_t (*multiply_)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                              const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                              cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  cublasComputeType_t singles_;
  cublasHandle_t handle_ = nullptr;
  int version_ = 0;
};

#endif

/// The products that `how` names; `any`: cuBLAS if it is found, else the own kernel. Throws `std::runtime_error` if
/// cuBLAS is named and cannot be had.
[[nodiscard]] inline std::shared_ptr<products> make_products(matmul how, [[maybe_unused]] bool tensor_cores) {
  if (how == matmul::own) return std::make_shared<own_products>();
#ifdef REMAT_EXAMPLE_HAS_CUBLAS
  if (void* const library = cublas_products::open()) return std::make_shared<cublas_products>(library, tensor_cores);
#endif
  if (how == matmul::any) return std::make_shared<own_products>();
  throw std::runtime_error(
      "cuBLAS was not found: put the folder of libcublas.so.13 or .12 into LD_LIBRARY_PATH, or take --matmul own");
}

}  // namespace train::gpu
