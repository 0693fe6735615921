# Compiler options for our own targets. -Wno-restrict: g++ 12 misreports `"literal" + std::string` (GCC bug 105651).
add_library(millrace_options INTERFACE)
target_include_directories(millrace_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(millrace_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-restrict -Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra -Werror=all-warnings --expt-relaxed-constexpr -lineinfo>)
if(MILLRACE_SANITIZE)
  target_compile_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(millrace_options INTERFACE -fsanitize=${MILLRACE_SANITIZE})
endif()
