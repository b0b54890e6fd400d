# SPDX-License-Identifier: BSL-1.0
# The tests of the project beside this file.

set(components ${remat_components})
list(REMOVE_ITEM components core)
set(consumer_headers)
foreach(header IN LISTS headers)
  remat_component_of("${header}" component)
  if(component IN_LIST remat_components AND NOT header MATCHES "\\.cuh$|/impl/|^src(_[a-z]+)?\\.hpp$")
    list(APPEND consumer_headers "remat/${header}")
  endif()
endforeach()
add_test(NAME consumer.component_names COMMAND "${CMAKE_COMMAND}" "-DCONFIG=${PROJECT_BINARY_DIR}/remat-config.cmake"
  "-DSCRATCH=${CMAKE_CURRENT_BINARY_DIR}/consumer/component_names" -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/component_names.cmake")
foreach(way installed subdirectory)
  add_test(NAME consumer.${way} COMMAND "${CMAKE_COMMAND}" -DWAY=${way} "-DBUILD=${PROJECT_BINARY_DIR}"
    "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DSCRATCH=${CMAKE_CURRENT_BINARY_DIR}/consumer/${way}"
    "-DGENERATOR=${CMAKE_GENERATOR}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DCOMPONENTS=${components}"
    "-DHEADERS=${consumer_headers}" -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/consume.cmake")
  set_tests_properties(consumer.${way} PROPERTIES LABELS gate TIMEOUT 600 COST 30)
endforeach()
