# SPDX-License-Identifier: BSL-1.0
# What programs in CUDA are compiled with.

# Every preset sets these. CMake calls a variable unused that nobody has read, and warns where no CUDA program is built.
set(remat_cuda_settings "${CMAKE_CUDA_FLAGS}${CMAKE_CUDA_FLAGS_RELEASE}${CMAKE_CUDA_ARCHITECTURES}")

# remat_enable_nvcc(RESULT): prepares `enable_language(CUDA)`; RESULT is empty, or why there can be no CUDA programs.
macro(remat_enable_nvcc result)
  set(${result})
  if(NOT REMAT_CUDA_PROGRAMS)
    set(${result} "REMAT_CUDA_PROGRAMS is off")
  elseif(NOT CUDAToolkit_FOUND)
    set(${result} "the CUDA Toolkit is missing")
  else()
    find_program(REMAT_NVCC nvcc HINTS "${CUDAToolkit_BIN_DIR}" DOC "The CUDA compiler")
    if(REMAT_NVCC)
      set(CMAKE_CUDA_COMPILER "${REMAT_NVCC}" CACHE FILEPATH "The CUDA compiler")
      if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
        set(CMAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures that CUDA programs are compiled for")
      endif()
      if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER AND DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
        set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
      endif()
      if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}" CACHE FILEPATH "nvcc's host compiler")
      endif()
    else()
      set(${result} "nvcc is missing")
    endif()
  endif()
endmacro()

# remat_cuda_program(TARGET): C++20, the library's headers, and one CUDA runtime, the one that remat::cuda links.
function(remat_cuda_program target)
  if(REMAT_PORTABLE_PROGRAMS)
    set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  else()
    set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
  endif()
  # CMake 3.25 does not know how nvcc is told of C++20.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  target_link_libraries(${target} PRIVATE remat::compiled remat::cuda Threads::Threads)
endfunction()
