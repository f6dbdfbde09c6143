# A folder is a part of the system: one static library, one test program, both from the files that lie in it.

# kv8_add_library(text DEPENDS core LINK PkgConfig::PCRE2): src/text/*.cc -> kv8_text.
# SOURCES adds files of sub-folders.
function(kv8_add_library name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LINK;SOURCES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_library(kv8_${name} STATIC ${sources} ${arg_SOURCES})
  target_include_directories(kv8_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  list(TRANSFORM arg_DEPENDS PREPEND kv8_)
  target_link_libraries(kv8_${name} PUBLIC ${arg_DEPENDS} ${arg_LINK} PRIVATE kv8_flags)
endfunction()

# kv8_add_test(text): tests/text/*_test.cc -> build/tests/kv8_text_test, registered with CTest. SOURCES adds files of
# sub-folders.
function(kv8_add_test name)
  cmake_parse_arguments(arg "" "" "DEPENDS;LINK;SOURCES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(APPEND sources ${arg_SOURCES})
  if(NOT sources)
    return()
  endif()
  add_executable(kv8_${name}_test ${sources})
  set_target_properties(kv8_${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  list(TRANSFORM arg_DEPENDS PREPEND kv8_)
  target_include_directories(kv8_${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(kv8_${name}_test PRIVATE KV8_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(kv8_${name}_test PRIVATE kv8_${name} ${arg_DEPENDS} ${arg_LINK} kv8_flags GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND kv8_${name}_test)
endfunction()

# kv8_add_fuzzer(safetensors formats): tests/fuzz/safetensors_fuzz.cc with libFuzzer -> build/fuzz/safetensors_fuzz.
function(kv8_add_fuzzer name)
  add_executable(${name}_fuzz ${name}_fuzz.cc)
  set_target_properties(${name}_fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  list(TRANSFORM ARGN PREPEND kv8_)
  target_compile_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name}_fuzz PRIVATE ${ARGN} kv8_flags)
endfunction()

# kv8_embed(kv8_cli scripts/fetch_model.py kFetchModelScript): the text of a file of the repository as
# `extern const std::string_view kFetchModelScript` in namespace kv8::embedded, declared by the header
# "embedded/kFetchModelScript.h". Both files are generated into the build folder.
function(kv8_embed target file symbol)
  set(input ${PROJECT_SOURCE_DIR}/${file})
  set(stem ${PROJECT_BINARY_DIR}/generated/embedded/${symbol})
  add_custom_command(
    OUTPUT ${stem}.cc ${stem}.h
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DSTEM=${stem} -DSYMBOL=${symbol} -P ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    DEPENDS ${input} ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    COMMENT "Embedding ${file}" VERBATIM)
  target_sources(${target} PRIVATE ${stem}.cc ${stem}.h)
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/generated)
endfunction()
