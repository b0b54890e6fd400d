// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The numbers in the tensors of train-gpt-gpu: single precision, or bfloat16. Kernels compute in single precision.

#include <cuda_bf16.h>

namespace train::gpu {

using bfloat16 = __nv_bfloat16;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bfloat16 x) { return __bfloat162float(x); }

/// The element that is nearest to `x`.
template <class T>
__device__ T to_element(float x);
template <>
__device__ inline float to_element<float>(float x) {
  return x;
}
template <>
__device__ inline bfloat16 to_element<bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

}  // namespace train::gpu
