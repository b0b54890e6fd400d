# SPDX-License-Identifier: BSL-1.0
# cmake -DPROGRAM=… -DFILE=… -P one_line_error.cmake: without an argument, and with FILE, which does not exist, the program
# prints nothing but one line on standard error, and its exit status is 1 or 2. The second line has the name of the file.
cmake_minimum_required(VERSION 3.25)
foreach(argument "" "${FILE}")
  execute_process(COMMAND "${PROGRAM}" ${argument} OUTPUT_VARIABLE output ERROR_VARIABLE error RESULT_VARIABLE status)
  if(NOT status MATCHES "^[12]$" OR NOT output STREQUAL "" OR NOT error MATCHES "^[^\n]+\n$")
    message(FATAL_ERROR "${PROGRAM} ${argument}: exit status ${status}, printed\n${output}\n${error}")
  endif()
  string(FIND "${error}" "${argument}" found)
  if(found LESS 0)
    message(FATAL_ERROR "${PROGRAM} ${argument}: its message does not name the file:\n${error}")
  endif()
endforeach()
