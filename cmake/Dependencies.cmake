# What we link, and why each is there (one line each).

find_package(Threads REQUIRED)

# Status, StatusOr, hash containers and thread annotations: the error type and
# the maps of the whole program.
find_package(absl REQUIRED)
# Logging with levels and no formatting cost when a level is off.
find_package(spdlog REQUIRED)
# SHA-256 of weights and node ids.
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
# Command line with complete help texts and TOML files.
find_package(CLI11 REQUIRED)

find_package(PkgConfig REQUIRED)
# One SIMD source for every CPU, chosen at run time.
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
# Checksums of payloads at memory speed.
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
# Many disk reads in flight from one thread.
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)

if(EVERWARM_TESTS)
  find_package(GTest REQUIRED)
endif()
if(EVERWARM_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# llama.cpp: ggml (tensors, quantised products), libllama (vocabulary, samplers,
# and the tests' oracle) and llama-common (chat templates, tool calls).
# tools/setup.sh fetches the pinned source and builds these static libraries
# once; EVERWARM_LLAMA_SOURCE names another checkout.
set(EVERWARM_LLAMA_SOURCE "${CMAKE_SOURCE_DIR}/.deps/llama.cpp" CACHE PATH
    "Source tree of llama.cpp")
set(EVERWARM_LLAMA_BUILD "${CMAKE_SOURCE_DIR}/.deps/llama-build" CACHE PATH
    "Where llama.cpp was built")
set(EVERWARM_GGML_BUILD "${EVERWARM_LLAMA_BUILD}" CACHE PATH
    "Where its ggml was built: ThreadSanitizer must see how its threads wait")
if(NOT EXISTS "${EVERWARM_LLAMA_BUILD}/src/libllama.a")
  message(FATAL_ERROR
    "llama.cpp is not built in ${EVERWARM_LLAMA_BUILD}; run 'tools/setup.sh' "
    "(or 'make', which does) first")
endif()
if(NOT EXISTS "${EVERWARM_GGML_BUILD}/ggml/src/libggml.a")
  message(FATAL_ERROR
    "ggml is not built in ${EVERWARM_GGML_BUILD}; 'make tsan' does it")
endif()

function(everwarm_llama_library name path)
  add_library(${name} STATIC IMPORTED)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "${path}")
endfunction()
everwarm_llama_library(llama_ggml_base
  "${EVERWARM_GGML_BUILD}/ggml/src/libggml-base.a")
everwarm_llama_library(llama_ggml_cpu
  "${EVERWARM_GGML_BUILD}/ggml/src/libggml-cpu.a")
everwarm_llama_library(llama_ggml
  "${EVERWARM_GGML_BUILD}/ggml/src/libggml.a")
everwarm_llama_library(llama_core "${EVERWARM_LLAMA_BUILD}/src/libllama.a")
everwarm_llama_library(llama_common_base
  "${EVERWARM_LLAMA_BUILD}/common/libllama-common-base.a")
everwarm_llama_library(llama_common
  "${EVERWARM_LLAMA_BUILD}/common/libllama-common.a")
everwarm_llama_library(llama_httplib
  "${EVERWARM_LLAMA_BUILD}/vendor/cpp-httplib/libcpp-httplib.a")
# Who needs whom, so that a static library comes after its users on the link line.
target_link_libraries(llama_ggml_cpu INTERFACE llama_ggml_base)
target_link_libraries(llama_ggml INTERFACE llama_ggml_cpu llama_ggml_base)
target_link_libraries(llama_core INTERFACE llama_ggml)
target_link_libraries(llama_common INTERFACE llama_common_base llama_core
  llama_httplib)

add_library(ew_ggml INTERFACE)
target_include_directories(ew_ggml SYSTEM INTERFACE
  "${EVERWARM_LLAMA_SOURCE}/ggml/include")
target_link_libraries(ew_ggml INTERFACE llama_ggml llama_ggml_cpu
  llama_ggml_base Threads::Threads ${CMAKE_DL_LIBS} m)

add_library(ew_llama INTERFACE)
target_include_directories(ew_llama SYSTEM INTERFACE
  "${EVERWARM_LLAMA_SOURCE}/include")
target_link_libraries(ew_llama INTERFACE llama_core ew_ggml)

# Its parser of grammars, which the interface does not have.
add_library(ew_llama_grammar INTERFACE)
target_include_directories(ew_llama_grammar SYSTEM INTERFACE
  "${EVERWARM_LLAMA_SOURCE}/src")
target_link_libraries(ew_llama_grammar INTERFACE ew_llama)

# JSON and HTTP come from the same tree, so that one version is linked.
add_library(ew_json INTERFACE)
target_include_directories(ew_json SYSTEM INTERFACE
  "${EVERWARM_LLAMA_SOURCE}/vendor")

add_library(ew_llama_common INTERFACE)
target_include_directories(ew_llama_common SYSTEM INTERFACE
  "${EVERWARM_LLAMA_SOURCE}/common")
target_link_libraries(ew_llama_common INTERFACE llama_common llama_common_base
  llama_httplib ew_llama ew_json)

add_library(ew_http INTERFACE)
target_include_directories(ew_http SYSTEM INTERFACE
  "${EVERWARM_LLAMA_SOURCE}/vendor/cpp-httplib")
target_link_libraries(ew_http INTERFACE llama_httplib Threads::Threads)
# What the static library was compiled with.
target_compile_definitions(ew_http INTERFACE CPPHTTPLIB_LISTEN_BACKLOG=512
  CPPHTTPLIB_FORM_URL_ENCODED_PAYLOAD_MAX_LENGTH=1048576
  CPPHTTPLIB_REQUEST_URI_MAX_LENGTH=32768 CPPHTTPLIB_TCP_NODELAY=1)
