# SPDX-License-Identifier: BSL-1.0
# cmake -DPROGRAM=… [-DARGUMENT=…] -DEXPECTED=… -P same_output.cmake: the program succeeds and prints exactly that file.
execute_process(COMMAND "${PROGRAM}" ${ARGUMENT} OUTPUT_VARIABLE output RESULT_VARIABLE status)
file(READ "${EXPECTED}" expected)
if(NOT status STREQUAL "0")
  message(FATAL_ERROR "${PROGRAM}: exit status ${status}")
endif()
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} printed\n${output}\ninstead of\n${expected}")
endif()
