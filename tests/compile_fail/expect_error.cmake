# SPDX-License-Identifier: BSL-1.0
# cmake -DCOMPILER=… -DINCLUDE=… -DFILE=… -P expect_error.cmake: FILE does not compile, and the compiler's message has
# the text of its line `// expected: TEXT`; with REMAT_MENDED defined it does compile, so that it fails for no other
# reason. A line `// standard: c++17` says what else is wrong with the first, and so does `// flags: -O0 -g`; with several
# lines of flags it is compiled with each, in this folder. `// lines: N` bounds its message, and `// only: gxx` names the
# one compiler that can see the error (CMakeLists.txt).
cmake_minimum_required(VERSION 3.25)
# Declarations are all that these errors need: the definitions, which the compiled form leaves out, take five times as long.
set(command "${COMPILER}" -fsyntax-only -DREMAT_SEPARATE_COMPILATION "-I${INCLUDE}" "${FILE}")
file(STRINGS "${FILE}" expected REGEX "^// expected: ")
string(REGEX REPLACE "^// expected: " "" expected "${expected}")
set(standard c++20)
file(STRINGS "${FILE}" header REGEX "^// (standard|lines): ")
foreach(line IN LISTS header)
  string(REGEX REPLACE "^// ([a-z]+): (.*)" "\\1;\\2" line "${line}")
  list(GET line 0 key)
  list(GET line 1 ${key})
endforeach()
file(STRINGS "${FILE}" flags REGEX "^// flags: ")
list(TRANSFORM flags REPLACE "^// flags: " "")
if(NOT flags)
  set(flags " ")  # once, with none
endif()
if(expected STREQUAL "")
  message(FATAL_ERROR "${FILE} lacks a line `// expected: TEXT`")
endif()

execute_process(COMMAND ${command} -std=c++20 -DREMAT_MENDED RESULT_VARIABLE status ERROR_VARIABLE output)
if(NOT status STREQUAL "0")
  message(FATAL_ERROR "it does not compile when mended:\n${output}")
endif()
foreach(wrong IN LISTS flags)
  separate_arguments(wrong)
  execute_process(COMMAND ${command} "-std=${standard}" ${wrong} WORKING_DIRECTORY "${CMAKE_CURRENT_LIST_DIR}"
    RESULT_VARIABLE status ERROR_VARIABLE output)
  if(status STREQUAL "0")
    message(FATAL_ERROR "it compiles with \"${wrong}\", but it should not")
  endif()
  string(FIND "${output}" "${expected}" found)
  if(found LESS 0)
    message(FATAL_ERROR "the message does not have \"${expected}\":\n${output}")
  endif()
  if(DEFINED lines)
    string(REGEX MATCHALL "\n" ends "${output}")
    list(LENGTH ends length)
    if(length GREATER lines)
      message(FATAL_ERROR "the message has ${length} lines; at most ${lines} are wanted:\n${output}")
    endif()
  endif()
endforeach()
