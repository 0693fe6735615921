# make package: dist/millrace_VERSION_ARCHITECTURE.deb of what cmake --install installs, for the system it was built on.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME millrace)
set(CPACK_PACKAGE_VENDOR "The Millrace authors")
set(CPACK_PACKAGE_CONTACT "The Millrace authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains small and middle-sized models at the speed of the hardware")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Trains models of 0.1 to 100 million parameters on CPUs and NVIDIA GPUs:
classifiers and regression on own pictures, tables and arrays, language
models, sound, and models of one's own by its C++ library. Searches
hyper-parameters, shows runs in a browser, and has a doctor that says what
keeps the GPU of any CUDA program waiting.")
if(MILLRACE_HAVE_CUDA)
  string(APPEND CPACK_DEBIAN_PACKAGE_DESCRIPTION "\n\nBuilt with CUDA ${CUDAToolkit_VERSION} for the GPU architectures ${CMAKE_CUDA_ARCHITECTURES}.")
else()
  string(APPEND CPACK_DEBIAN_PACKAGE_DESCRIPTION "\n\nBuilt without CUDA: it trains on the CPU.")
endif()
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_STRIP_FILES ON)

# For package_dependencies.cmake: what must find its libraries, what is loaded when it is wanted, and what else is worth having.
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/package_dependencies.cmake)
set(CPACK_MILLRACE_PROGRAMS ${PROJECT_BINARY_DIR}/millrace ${PROJECT_BINARY_DIR}/libmillrace-probe.so)
set(CPACK_MILLRACE_SUGGESTS libpq5)
if(MILLRACE_HAVE_OPENMPI)
  set(CPACK_MILLRACE_PLUGINS ${PROJECT_BINARY_DIR}/libmillrace-mpi.so)
  list(APPEND CPACK_MILLRACE_SUGGESTS openmpi-bin)
endif()
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/packages.txt rows REGEX "^build +[^ ]+-dev +[^ ]+ +[a-z]")  # to link with the library
foreach(row IN LISTS rows)
  string(REGEX REPLACE "^build +([^ ]+).*" "\\1" package "${row}")
  list(APPEND CPACK_MILLRACE_SUGGESTS ${package})
endforeach()
list(REMOVE_ITEM CPACK_MILLRACE_SUGGESTS libgtest-dev)
include(CPack)
