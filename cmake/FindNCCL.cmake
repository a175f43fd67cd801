# Finds NCCL: in NCCL_ROOT, in the CUDA toolkit, in the system's directories, in
# NVIDIA's wheels from PyPI.
#
#   NCCL::Headers   nccl.h; enough to compile what loads NCCL when it runs
#   NCCL::NCCL      the library as well; only where NCCL_LIBRARY was found
#   NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR, NCCL_LIBRARY
include(${CMAKE_CURRENT_LIST_DIR}/NvidiaWheels.cmake)

zpp_nvidia_wheels(nccl_wheels)
set(nccl_hints ${CUDAToolkit_ROOT_DIR} ${CUDAToolkit_TARGET_DIR} /usr/local/cuda)
set(nccl_paths "")
foreach(folder IN LISTS nccl_wheels)
  list(APPEND nccl_paths "${folder}/nccl" "${folder}/cu13" "${folder}/cu12")
endforeach()
find_path(NCCL_INCLUDE_DIR nccl.h
  HINTS ${nccl_hints} PATHS ${nccl_paths} PATH_SUFFIXES include
  DOC "Where nccl.h is")
# The library of the headers, before any other. Wheels lack the name without a
# version.
get_filename_component(nccl_prefix "${NCCL_INCLUDE_DIR}" DIRECTORY)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2
  HINTS ${nccl_prefix} ${nccl_hints} PATHS ${nccl_paths}
  PATH_SUFFIXES lib lib64 DOC "libnccl.so")
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(EXISTS "${NCCL_INCLUDE_DIR}/nccl.h")
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_defines
    REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  set(NCCL_VERSION "")
  foreach(part MAJOR MINOR PATCH)
    if(nccl_defines MATCHES "NCCL_${part} +([0-9]+)")
      list(APPEND NCCL_VERSION ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_INCLUDE_DIR NCCL_VERSION
  VERSION_VAR NCCL_VERSION)

if(CMAKE_SCRIPT_MODE_FILE)
  # A script has no targets.
  return()
endif()
if(NCCL_FOUND AND NOT TARGET NCCL::Headers)
  add_library(NCCL::Headers INTERFACE IMPORTED)
  set_target_properties(NCCL::Headers PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
if(NCCL_FOUND AND NCCL_LIBRARY AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}"
    INTERFACE_LINK_LIBRARIES NCCL::Headers)
endif()
