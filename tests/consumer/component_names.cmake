# SPDX-License-Identifier: BSL-1.0
# cmake -DCONFIG=… -DSCRATCH=… -P component_names.cmake: find_package says of a component that there is none of its name, or that
# the installed remat was built without it. CONFIG: remat-config.cmake as it is installed.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${SCRATCH}")
file(COPY "${CONFIG}" DESTINATION "${SCRATCH}/remat")
file(WRITE "${SCRATCH}/remat/remat-core-targets.cmake" "")
file(WRITE "${SCRATCH}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(names LANGUAGES NONE)
find_package(remat REQUIRED COMPONENTS \${COMPONENT})
")
function(check component says)
  execute_process(COMMAND "${CMAKE_COMMAND}" -G Ninja -S "${SCRATCH}" -B "${SCRATCH}/build" "-Dremat_DIR=${SCRATCH}/remat" "-DCOMPONENT=${component}"
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  string(FIND "${output}" "remat::${component}: ${says}" at)
  if(status STREQUAL "0" OR at EQUAL -1)
    message(FATAL_ERROR "${component}: expected \"${says}\", got:\n${output}")
  endif()
endfunction()
check(jsn "there is no such component; the nearest one is json (json, boost, cbc, cuda, eigen, mpi, report, compiled)")
check(compile "there is no such component; the nearest one is compiled (")
check(windows "there is no such component (json, ")
check(eigen "the installed remat was built without it")
