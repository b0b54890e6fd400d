# SPDX-License-Identifier: BSL-1.0
# cmake -DCOMPILER=… -DINCLUDE=… -DSCRATCH=… -P one_form.cmake: a program is header-only, or compiled with
# REMAT_SEPARATE_COMPILATION. One that is both does not link, and the linker names the macro.
cmake_minimum_required(VERSION 3.25)

set(compiled_flags -DREMAT_SEPARATE_COMPILATION)
set(header_only_flags)
file(WRITE "${SCRATCH}/main.cpp" "#include \"remat/core/run.hpp\"\nint answer();\nint main() { return answer(); }\n")
file(WRITE "${SCRATCH}/other.cpp" "#include \"remat/core/run.hpp\"\nint answer() { return 0; }\n")
foreach(form compiled header_only)
  foreach(unit main other)
    execute_process(COMMAND "${COMPILER}" -std=c++20 "-I${INCLUDE}" ${${form}_flags} -c "${SCRATCH}/${unit}.cpp"
      -o "${SCRATCH}/${unit}_${form}.o" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endforeach()
foreach(main compiled header_only)
  foreach(other compiled header_only)
    execute_process(COMMAND "${COMPILER}" "${SCRATCH}/main_${main}.o" "${SCRATCH}/other_${other}.o" -o "${SCRATCH}/program"
      RESULT_VARIABLE status ERROR_VARIABLE output)
    if(main STREQUAL other AND NOT status STREQUAL "0")
      message(FATAL_ERROR "${main} twice does not link:\n${output}")
    elseif(NOT main STREQUAL other AND status STREQUAL "0")
      message(FATAL_ERROR "${main} and ${other} link")
    elseif(NOT main STREQUAL other AND NOT output MATCHES "REMAT_SEPARATE_COMPILATION")
      message(FATAL_ERROR "${main} and ${other}: the linker does not name REMAT_SEPARATE_COMPILATION:\n${output}")
    endif()
  endforeach()
endforeach()
