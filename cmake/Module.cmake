# One library per folder of src/. The link line names exactly the modules that
# it may include; tools/check_layers.py fails on an include that goes up.

function(everwarm_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic
    -Wno-missing-field-initializers)
  if(EVERWARM_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

# everwarm_module(NAME SOURCES a.cc ... DEPS x ...)
function(everwarm_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(ew_${name} STATIC ${ARG_SOURCES})
  target_include_directories(ew_${name} PUBLIC "${CMAKE_SOURCE_DIR}/src")
  target_link_libraries(ew_${name} PUBLIC ${ARG_DEPS})
  everwarm_warnings(ew_${name})
endfunction()

# A test's label and its time limit, which is for a build without sanitizers.
# ThreadSanitizer makes the slowest tests take 17 to 23 times as long, all of
# them with most of their limit to spare.
function(everwarm_test_limits name label seconds)
  if(NOT EVERWARM_SANITIZER STREQUAL "")
    math(EXPR seconds "${seconds} * 20")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${seconds})
endfunction()

# everwarm_test(NAME LABEL unit [TIMEOUT seconds] SOURCES a_test.cc ...
#   DEPS x ...)
function(everwarm_test name)
  if(NOT EVERWARM_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}"
    "${CMAKE_SOURCE_DIR}/src")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest
    GTest::gtest_main)
  everwarm_warnings(${name})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  everwarm_test_limits(${name} "${ARG_LABEL}" ${ARG_TIMEOUT})
endfunction()

# everwarm_bench(NAME SOURCES a_bench.cc DEPS x ...)
function(everwarm_bench name)
  if(NOT EVERWARM_BENCHMARKS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}"
    "${CMAKE_SOURCE_DIR}/src")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark)
  everwarm_warnings(${name})
endfunction()
