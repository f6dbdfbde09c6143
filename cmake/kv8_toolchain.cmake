# Compiler, linker and warnings, for every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# asserts of libraries stay off in Release; our own invariants use KV8_CHECK, which is always on.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(KV8_CCACHE ccache)
if(KV8_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KV8_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${KV8_CCACHE})
endif()
find_program(KV8_MOLD mold)
if(KV8_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(kv8_flags INTERFACE)
target_compile_options(kv8_flags INTERFACE
  # No contraction: a*b+c means the same on every target, so that scalar and SIMD code agree bit for bit.
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Werror;-ffp-contract=off>
  # g++ 12 sees overlaps in std::string's operator+ that aren't there (GCC bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>)
if(KV8_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${KV8_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=${KV8_SANITIZE})
  # The SIMD kernels once for today's machines and once for the baseline: the targets between them and above are the
  # same source, and compiling them all under sanitizers takes longer than everything else.
  add_compile_definitions("HWY_DISABLED_TARGETS=(HWY_AVX3_DL|HWY_AVX3|HWY_SSE4|HWY_SSSE3)")
endif()
if(KV8_FUZZERS)  # the libraries' branches guide the fuzzers too, not only the fuzzers' own
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
endif()

set(KV8_HAVE_CUDA OFF)
if(NOT KV8_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # the -gencode below says it: sm_90a has no CMake name that nvcc 13 accepts everywhere
    # CMake 3.25 has no name for nvcc's C++20; device code is C++17, nvcc's default.
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
    find_package(CUDAToolkit REQUIRED)
    set(KV8_HAVE_CUDA ON)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_90a,code=sm_90a>")
  elseif(KV8_CUDA STREQUAL "ON")
    message(FATAL_ERROR "KV8_CUDA=ON, but no CUDA compiler was found: install the CUDA toolkit (13.0), put nvcc on PATH, or use KV8_CUDA=AUTO.")
  endif()
endif()
message(STATUS "kv8: CUDA backend ${KV8_HAVE_CUDA}")
