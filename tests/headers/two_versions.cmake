# SPDX-License-Identifier: BSL-1.0
# cmake -DCOMPILER=… -DINCLUDE=… -DSCRATCH=… -P two_versions.cmake: translation units of two versions are in one program,
# and each keeps its own inline function.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${SCRATCH}")
foreach(number 1 2)
  file(READ "${INCLUDE}/remat/version.hpp" text)
  string(REGEX REPLACE "(REMAT_NAMESPACE remat::inline )[^\n]+" "\\1of_${number}" text "${text}")
  string(APPEND text "namespace REMAT_NAMESPACE {\ninline int number_of(const version&) { return ${number}; }\n}\n")
  file(WRITE "${SCRATCH}/${number}/remat/version.hpp" "${text}")
  file(WRITE "${SCRATCH}/${number}.cpp" "#include \"remat/core/id.hpp\"\n"
    "int answer_${number}() { return remat::number_of(remat::library_version); }\n")
  execute_process(COMMAND "${COMPILER}" -std=c++20 "-I${SCRATCH}/${number}" "-I${INCLUDE}" -c "${SCRATCH}/${number}.cpp"
    -o "${SCRATCH}/${number}.o" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(WRITE "${SCRATCH}/main.cpp" "int answer_1();\nint answer_2();\nint main() { return 10 * answer_1() + answer_2(); }\n")
execute_process(COMMAND "${COMPILER}" "${SCRATCH}/main.cpp" "${SCRATCH}/1.o" "${SCRATCH}/2.o" -o "${SCRATCH}/program"
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${SCRATCH}/program" RESULT_VARIABLE status)
if(NOT status STREQUAL "12")
  message(FATAL_ERROR "the two versions answer ${status}, not 12: they share names")
endif()
