# SPDX-License-Identifier: BSL-1.0
# cmake -DCOMPILER=… -DINCLUDE=… -DFILE=… -P expect_error.cmake: FILE does not compile, and the compiler's message has
# the text of its line `// expected: TEXT`; with REMAT_MENDED defined it does compile, so that it fails for no other
# reason.
cmake_minimum_required(VERSION 3.25)
set(command "${COMPILER}" -std=c++20 -fsyntax-only "-I${INCLUDE}" "${FILE}")
file(STRINGS "${FILE}" expected REGEX "^// expected: ")
string(REGEX REPLACE "^// expected: " "" expected "${expected}")
if(expected STREQUAL "")
  message(FATAL_ERROR "${FILE} lacks a line `// expected: TEXT`")
endif()

execute_process(COMMAND ${command} -DREMAT_MENDED RESULT_VARIABLE status ERROR_VARIABLE output)
if(NOT status STREQUAL "0")
  message(FATAL_ERROR "it does not compile when mended:\n${output}")
endif()
execute_process(COMMAND ${command} RESULT_VARIABLE status ERROR_VARIABLE output)
if(status STREQUAL "0")
  message(FATAL_ERROR "it compiles, but it should not")
endif()
string(FIND "${output}" "${expected}" found)
if(found LESS 0)
  message(FATAL_ERROR "the message does not have \"${expected}\":\n${output}")
endif()
