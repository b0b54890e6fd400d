# SPDX-License-Identifier: BSL-1.0
# cmake -DCOMPILER=… -DINCLUDE=include -DSCRATCH=… -P size.cmake: the umbrellas are cheap to include. What they add to the
# standard headers that they need, in bytes after the preprocessor, stays within a share of these. (Bytes, not seconds: the
# same on every machine. bench/compile_time/compare.sh measures seconds.)
cmake_minimum_required(VERSION 3.25)

function(preprocessed_bytes text result)
  file(WRITE "${SCRATCH}.cpp" "${text}")
  execute_process(COMMAND "${COMPILER}" -std=c++20 -E -P "-I${INCLUDE}" ${ARGN} "${SCRATCH}.cpp" -o "${SCRATCH}.ii"
    RESULT_VARIABLE status ERROR_VARIABLE errors)
  if(NOT status STREQUAL "0")
    message(FATAL_ERROR "${errors}")
  endif()
  file(SIZE "${SCRATCH}.ii" bytes)
  set(${result} ${bytes} PARENT_SCOPE)
endfunction()

function(check_umbrella umbrella form most_percent)
  # The standard headers: the lines of the preprocessor's own list of files that are not the library's.
  execute_process(COMMAND "${COMPILER}" -std=c++20 -M "-I${INCLUDE}" ${form} -x c++ "${INCLUDE}/remat/${umbrella}.hpp"
    OUTPUT_VARIABLE files RESULT_VARIABLE status)
  string(REGEX MATCHALL "[^ \\\n]*/remat/[^ \\\n]*" own "${files}")
  set(standard)
  foreach(file IN LISTS own)
    file(STRINGS "${file}" includes REGEX "^#include <")
    list(FILTER includes EXCLUDE REGEX "this-file-does-not-exist")  # what stops a compiler set to an older standard
    list(APPEND standard ${includes})
  endforeach()
  list(REMOVE_DUPLICATES standard)
  list(JOIN standard "\n" standard)
  preprocessed_bytes("${standard}\n" base)
  preprocessed_bytes("#include \"remat/${umbrella}.hpp\"\n" all ${form})
  math(EXPR percent "(${all} - ${base}) * 100 / ${base}")
  message("${umbrella}.hpp ${form}: ${all} bytes, its standard headers ${base}: ${percent} % more (at most ${most_percent})")
  if(percent GREATER most_percent)
    message(SEND_ERROR "${umbrella}.hpp ${form} adds ${percent} % to its standard headers; at most ${most_percent} %")
  endif()
endfunction()

check_umbrella(remat "" 20)
check_umbrella(remat -DREMAT_SEPARATE_COMPILATION 15)
check_umbrella(solvers -DREMAT_SEPARATE_COMPILATION 25)
check_umbrella(execute -DREMAT_SEPARATE_COMPILATION 25)
check_umbrella(adjoint "" 10)  # a leaf
check_umbrella(arena "" 15)  # a leaf
check_umbrella(order "" 15)  # a leaf
# nvcc's pass for the device has no definitions in either form.
check_umbrella(solvers -D__CUDA_ARCH__=900 25)
check_umbrella(execute -D__CUDA_ARCH__=900 25)
