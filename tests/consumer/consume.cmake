# SPDX-License-Identifier: BSL-1.0
# cmake -DWAY=installed|subdirectory -DBUILD=… -DSOURCE=… -DSCRATCH=… -DGENERATOR=… -DCOMPILER=… -DCOMPONENTS=…
#   -DHEADERS=… -P consume.cmake: configures, builds and runs the project beside this file.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status STREQUAL "0")
    message(FATAL_ERROR "${ARGN}:\n${output}")
  elseif(output MATCHES "CMake (Deprecation )?(Warning|Error)")
    message(FATAL_ERROR "${ARGN} warns:\n${output}")
  endif()
  message("${output}")
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
if(WAY STREQUAL "installed")
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix")
  # Moved, to show that nothing installed points to where it was put first.
  file(RENAME "${SCRATCH}/prefix" "${SCRATCH}/moved")
  set(settings "-DCMAKE_PREFIX_PATH=${SCRATCH}/moved")
else()
  set(settings "-DREMAT_SOURCE=${SOURCE}")
endif()
# Lists go through a file: an argument would fall apart at their semicolons.
file(WRITE "${SCRATCH}/lists.cmake" "set(COMPONENTS \"${COMPONENTS}\" CACHE STRING \"\")
set(HEADERS \"${HEADERS}\" CACHE STRING \"\")
")
run("${CMAKE_COMMAND}" -Werror=dev -C "${SCRATCH}/lists.cmake" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${SCRATCH}/build"
  -G "${GENERATOR}" -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=12 "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=$ENV{CMAKE_CXX_COMPILER_LAUNCHER}" ${settings})
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build" --parallel 1)
run("${SCRATCH}/build/consumer")
run("${SCRATCH}/build/consumer_compiled")
