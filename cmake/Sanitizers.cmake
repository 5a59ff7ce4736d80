# GCC 12 sees uninitialized values in std::variant that are not there once its
# sanitizers instrument the moves; the sanitizers themselves would find real ones.
if(NOT EVERWARM_SANITIZER STREQUAL "" AND NOT EVERWARM_SANITIZER STREQUAL "fuzz")
  add_compile_options(-Wno-maybe-uninitialized)
endif()

# Sanitizers are chosen for the whole tree, so that every object agrees.
if(EVERWARM_SANITIZER STREQUAL "asan")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(EVERWARM_SANITIZER STREQUAL "tsan")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(EVERWARM_SANITIZER STREQUAL "fuzz")
  # Coverage in every object; the engine itself is linked by everwarm_fuzzer().
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined
                      -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(NOT EVERWARM_SANITIZER STREQUAL "")
  message(FATAL_ERROR "EVERWARM_SANITIZER is '${EVERWARM_SANITIZER}'; it may be asan, tsan, fuzz or empty")
endif()
