# SPDX-License-Identifier: BSL-1.0
# cmake -DCOMPILER=… -DSETTINGS=… -DFILES=… -P as_a_user.cmake: programs of the pages compile without a warning, as in the
# project of a user who compiles strictly, without run-time types, and includes the library not as a system's headers.
# Declarations alone: headers.* compile the definitions. SETTINGS as in self_contained.cmake.
cmake_minimum_required(VERSION 3.25)
include("${SETTINGS}")

set(includes)
foreach(directory IN LISTS OWN)
  list(APPEND includes "-I${directory}")
endforeach()
list(REMOVE_ITEM DEPENDENCIES ${OWN} /usr/include "")
foreach(directory IN LISTS DEPENDENCIES)
  list(APPEND includes -isystem "${directory}")
endforeach()
list(LENGTH FILES count)
if(count EQUAL 0)
  message(FATAL_ERROR "no programs to compile")
endif()
foreach(file IN LISTS FILES)
  execute_process(COMMAND "${COMPILER}" -std=c++20 -fsyntax-only -Wall -Wextra -Wconversion -Wshadow -Werror -fno-rtti
      -DREMAT_SEPARATE_COMPILATION ${includes} "${file}"
    RESULT_VARIABLE status ERROR_VARIABLE output)
  if(NOT status STREQUAL "0")
    message(SEND_ERROR "${file} under ${COMPILER}:\n${output}")
  endif()
endforeach()
