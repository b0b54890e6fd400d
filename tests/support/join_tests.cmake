# SPDX-License-Identifier: BSL-1.0
# remat_join_tests(OUTPUT FILE…): writes one source that includes the test files FILE… (relative to tests/), each in a
# namespace of its own, so that two of them may have helpers of the same name. What they include comes first, outside of
# the namespaces; each file's own includes then find the guards set. doctest still knows which file a test is from.
function(remat_join_tests output)
  set(includes)
  set(bodies)
  foreach(file IN LISTS ARGN)
    file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/${file}" lines REGEX "^#include ")
    list(APPEND includes ${lines})
    string(MAKE_C_IDENTIFIER "${file}" identifier)
    string(APPEND bodies "namespace ${identifier} {\n#include \"${file}\"\n}\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  endforeach()
  list(TRANSFORM includes REPLACE " *//.*$" "")
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "\n" includes)
  file(CONFIGURE OUTPUT "${output}" CONTENT "${includes}\n${bodies}" @ONLY)
endfunction()
