# ccache when it is there; a launcher chosen on the command line is kept.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # What it has to be told before it keeps objects that were made with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Inner loops ask for -O3 themselves. nvcc's level is that of host code, which launches and no more; device code is always at -O3.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CUDA_FLAGS_RELEASE "-O1 -DNDEBUG")

# Compiles the C++ sources of a target in groups of about twenty files of one room (a folder of src/ or tests/ with all below), which
# parse their headers once: a third of the time. A file's group depends on its name alone, so adding one leaves the others as they are.
# Sources with options of their own are compiled one by one.
option(MILLRACE_UNITY "Compile files of one room together" ON)
function(millrace_build_together target)
  if(NOT MILLRACE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  set(rooms)
  foreach(source ${sources})
    file(RELATIVE_PATH place ${PROJECT_SOURCE_DIR} ${source})
    string(REGEX MATCH "^[^/]+/[^/]+" room ${place})
    list(APPEND rooms ${room})
    list(APPEND files_of_${room} ${source})
  endforeach()
  list(REMOVE_DUPLICATES rooms)
  foreach(room ${rooms})
    list(LENGTH files_of_${room} count)
    math(EXPR groups "(${count} + 19) / 20")
    string(REPLACE "/" "_" name ${room})
    foreach(source ${files_of_${room}})
      get_filename_component(file ${source} NAME)
      string(MD5 digest ${file})
      string(SUBSTRING ${digest} 0 6 digits)
      math(EXPR group "0x${digits} % ${groups}")
      set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${name}_${group})
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# The same for .cu files, whose headers take nvcc two thirds of its time: those that the patterns match are compiled as one. Names in
# their unnamed namespaces must differ.
function(millrace_cuda_together target group)
  if(NOT MILLRACE_UNITY)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${ARGN})
  list(TRANSFORM sources REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE includes)
  string(CONCAT content ${includes})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/cuda/${group}.cu CONTENT "${content}" @ONLY)
  set_source_files_properties(${sources} PROPERTIES HEADER_FILE_ONLY ON)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/cuda/${group}.cu)
endfunction()

# Parses the headers that most files name once per target, or once for several whose options are the same (REUSE_FROM another): a
# sixth of the time. Sources with another level of optimisation parse them again.
function(millrace_parse_once target)
  if(NOT MILLRACE_UNITY)
    return()
  endif()
  # g++ 12 forgets that precompiled headers are the system's and reports what it would not otherwise.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)
  cmake_parse_arguments(PARSE_ARGV 1 with "" "REUSE_FROM" "HEADERS")
  if(with_REUSE_FROM)
    target_precompile_headers(${target} REUSE_FROM ${with_REUSE_FROM})
  else()
    target_precompile_headers(${target} PRIVATE <algorithm> <chrono> <cmath> <filesystem> <functional> <map> <memory> <optional>
      <string> <vector> <fmt/format.h> ${with_HEADERS})
  endif()
endfunction()

# Adds the sources *.simd.cpp below the current folder, each compiled once per instruction set (src/ops/cpu/isa.h), which is chosen at
# run time. Products are fused multiply-adds on purpose; the first scheduling pass would pull the chains of a register tile together.
function(millrace_simd_sources target)
  set(sets portable)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sets avx2 avx512)
  endif()
  set(portable_bytes 16)
  set(avx2_bytes 32)
  set(avx512_bytes 64)
  set(avx2_options -mavx2 -mfma)
  set(avx512_options -mavx512f -mfma)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.simd.cpp)
  foreach(source ${sources})
    foreach(set ${sets})
      get_filename_component(name ${source} NAME_WE)
      set(made ${CMAKE_CURRENT_BINARY_DIR}/simd/${name}_${set}.cpp)
      file(CONFIGURE OUTPUT ${made} CONTENT
        "#define MILLRACE_ISA ${set}\nnamespace {\nconstexpr int kVectorBytes = ${${set}_bytes};\n}\n#include \"${source}\"  // NOLINT(bugprone-suspicious-include)\n")
      set_source_files_properties(${made} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON OBJECT_DEPENDS ${source}
        COMPILE_OPTIONS "-O3;-ffp-contract=fast;-fno-math-errno;-fno-trapping-math;-fno-schedule-insns;${${set}_options}")
      target_sources(${target} PRIVATE ${made})
    endforeach()
  endforeach()
endfunction()

# Compiler options for our own targets. g++ 12 misreports `"literal" + std::string` (-Wrestrict, GCC bug
# 105651) and moves of std::variant (-Wmaybe-uninitialized); -Wpsabi speaks of
# binaries of g++ 9, which we do not have.
add_library(millrace_options INTERFACE)
target_include_directories(millrace_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(millrace_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-restrict -Wno-maybe-uninitialized -Wno-psabi>
  # g++ would collect its own garbage from 128 MB on: a twentieth of the time.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra --expt-relaxed-constexpr -lineinfo>)
# Warnings are errors with the compiler we develop with. Another one's new warning must not keep anybody from building.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(millrace_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE})
endif()
